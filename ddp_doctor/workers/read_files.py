"""Reads small files that may lie on a file system that hangs; says one message per path, in order."""


def main(request, say, hear):
    for path in request["paths"]:
        try:
            with open(path, "rb") as file:
                data = file.read(request["limit"])
        except OSError as error:
            say({"path": path, "error": error.strerror or str(error), "errno": error.errno})
        else:
            say({"path": path, "text": data.decode("utf-8", "replace")})
