"""The commands and their options."""

from __future__ import annotations

import enum
import functools
import inspect
import itertools
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperGroup

from ddp_doctor import __version__, config
from ddp_doctor.cli import MOST_SECONDS
from ddp_doctor.cli.output import Output

app = typer.Typer(
    name="ddp-doctor",
    help="Says why PyTorch DDP initialisation hangs, and what to type to fix it.",
    epilog="Without a command: run. Exit codes: 0 nothing found, 1 problem found, 2 usage error, 3 ddp-doctor itself "
    "failed, 4 could not tell, 5 nothing to examine.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Format(str, enum.Enum):
    """Formats of a report."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"
    GITHUB = "github"
    JUNIT = "junit"
    SARIF = "sarif"


class Listing(str, enum.Enum):
    """Formats of what is no report."""

    TEXT = "text"
    JSON = "json"


class Colour(str, enum.Enum):
    """When to colour."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class FailOn(str, enum.Enum):
    """The least severity that makes the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    NEVER = "never"


class Launch(str, enum.Enum):
    """What a recipe is for."""

    TORCHRUN = "torchrun"
    SLURM = "slurm"
    MPI = "mpi"
    RAY = "ray"
    PYTORCHJOB = "pytorchjob"
    JOBSET = "jobset"


class Active(str, enum.Enum):
    """Whether probes may use the GPUs."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def _option(*names: str, help: str, **more: Any) -> Any:
    variable = "DDP_DOCTOR_" + names[0].lstrip("-").upper().replace("-", "_")
    return typer.Option(*names, help=help, envvar=variable, show_envvar=False, **more)


FormatOption = Annotated[Format, _option("--format", "-f", help="Format of the report.")]
ListingOption = Annotated[Listing, _option("--format", "-f", help="Format of the list.")]
OutputOption = Annotated[
    Path | None, _option("--output", "-o", help="Write the report to this file instead of stdout.")
]
ColourOption = Annotated[Colour, _option("--color", help="Colour the report; NO_COLOR and a pipe turn it off.")]
VerboseOption = Annotated[int, _option("--verbose", "-v", help="Show every check, probe and folded line.", count=True)]
QuietOption = Annotated[bool, _option("--quiet", "-q", help="Nothing on stderr but errors.")]
SelectOption = Annotated[
    list[str] | None, _option("--select", help="Only these checks: ids, prefixes such as DDP2, or names; commas.")
]
IgnoreOption = Annotated[list[str] | None, _option("--ignore", help="Leave these checks out.")]
FailOnOption = Annotated[FailOn, _option("--fail-on", help="Least severity for exit code 1.")]
StrictOption = Annotated[bool, _option("--strict", help="Exit with 4 if any check could not tell.")]
SHARE_SECONDS = 1.0
TimeoutOption = Annotated[float, _option("--timeout", help="Seconds for the whole call.", min=0.01, max=MOST_SECONDS)]
ProbeTimeoutOption = Annotated[
    float,
    _option(
        "--probe-timeout",
        help="Seconds for one probe; GPU drivers get 30.",
        min=0.01,
        max=MOST_SECONDS,
    ),
]
PythonOption = Annotated[
    str | None, _option("--python", help="The interpreter whose torch is examined. Default: the one that has torch.")
]
NoRedactOption = Annotated[
    bool,
    _option(
        "--no-redact",
        help="Keep names and addresses in what is made for others: all formats but text and json, and bundles.",
    ),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Settings file; default ddp-doctor.toml or pyproject.toml here.")
]


def _typed(context: typer.Context, name: str) -> bool:
    """Whether a parameter stands on the command line itself."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ddp-doctor {__version__}")
        raise typer.Exit


class Shared(NamedTuple):
    """What the options that all reports share come to."""

    out: Output
    selection: Any


def _reporting(*, needs_verdict: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the options that all reports share; it receives what they come to as `shared`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        del own["shared"]
        common = inspect.signature(_shared, eval_str=True).parameters
        names = common.keys() - {"needs_verdict", "context"}

        @functools.wraps(command)
        def complete(context: typer.Context, **values: Any) -> None:
            given = {name: values.pop(name) for name in names}
            if "context" in own:
                values["context"] = context
            command(shared=_shared(context, needs_verdict=needs_verdict, **given), **values)

        first = {"context": common["context"]} | own
        last = {name: parameter for name, parameter in common.items() if name in names}
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (first | last).values()]
        complete.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        complete.__annotations__ = {each.name: each.annotation for each in parameters}
        return complete

    return decorate


def _shared(
    context: typer.Context,
    *,
    needs_verdict: bool,
    format: FormatOption = Format.TEXT,
    output: OutputOption = None,
    color: ColourOption = Colour.AUTO,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    fail_on: FailOnOption = FailOn.ERROR,
    strict: StrictOption = False,
    no_redact: NoRedactOption = False,
    config: ConfigOption = None,
) -> Shared:
    out = _output(context, format, output, color, verbose, quiet, fail_on, strict, no_redact, needs_verdict)
    return Shared(out, _selection(select, ignore, context))


@app.callback()
def _every(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": False})
@_reporting(needs_verdict=False)
def run(
    context: typer.Context,
    shared: Shared,
    nproc: Annotated[
        int | None,
        _option("--nproc", help="Trial ranks to start. Default: the visible GPUs, else 2.", min=1, max=1024),
    ] = None,
    script: Annotated[
        Path | None, _option("--script", help="Also read this training script, without running it.", exists=True)
    ] = None,
    active: Annotated[Active, _option("--active", help="Whether probes may use the GPUs.")] = Active.AUTO,
    alone: Annotated[
        bool, _option("--alone", help="As a rank of a launcher: examine just this node, and meet no other ranks.")
    ] = False,
    wait: Annotated[
        float | None,
        _option(
            "--wait",
            help="Seconds to wait for the other ranks. Default: 20, more in a large job, none for RANK set by hand.",
            min=0.1,
            max=MOST_SECONDS,
        ),
    ] = None,
    failing_nodes: Annotated[
        Path | None,
        _option("--failing-nodes", help="Write the nodes at fault to this file, as `srun --exclude` takes them."),
    ] = None,
    meet_port: Annotated[
        int | None,
        _option("--meet-port", help="Port where the hosts meet. Default: made from the job's id.", min=1, max=65534),
    ] = None,
    share: Annotated[
        str | None,
        _option(
            "--share", metavar="DIR", help="Folder that all hosts see, for hosts that cannot meet over the network."
        ),
    ] = None,
    timeout: TimeoutOption = 60.0,
    probe_timeout: ProbeTimeoutOption = 5.0,
    python: PythonOption = None,
) -> None:
    """Examine this node and this shell's launch environment: will init_process_group work here, and if not, why."""
    if context.args:
        raise typer.BadParameter(
            f"run examines and takes no command: to run one and watch it, `ddp-doctor watch -- {shlex.join(context.args)}`"
        )
    _can_become_a_file(failing_nodes)
    folder, is_there = _shared_folder(share)
    from ddp_doctor.cli.wish import Wish
    from ddp_doctor.rank.who import NAMES, who_am_i

    wish = Wish(
        nproc=nproc,
        script=script,
        active=active.value,
        selection=shared.selection,
        timeout=timeout,
        probe_timeout=probe_timeout,
        python=python,
        share=folder,
    )
    shared.out.failing_nodes = failing_nodes
    shared.out.one_of_many = alone and any(name in os.environ for name in NAMES)
    launcher = None if alone else who_am_i(os.environ)
    # variables that somebody exported are no other ranks: those are met only where they are waited for
    if launcher is not None and (wait is not None or launcher.name != "by hand"):
        from ddp_doctor.cli.merged import examine_rank

        raise typer.Exit(examine_rank(shared.out, wish, launcher, wait=wait, meet_port=meet_port))
    if not is_there:
        raise typer.BadParameter(f"--share {share}: no such folder")
    from ddp_doctor.cli.run import examine_node

    shared.out.deliver(examine_node(shared.out, wish))


@app.command()
@_reporting(needs_verdict=True)
def attach(
    context: typer.Context,
    shared: Shared,
    pids: Annotated[
        list[int] | None,
        typer.Argument(metavar="PID...", help="A process of the job; its other ranks are found.", min=1),
    ] = None,
    every: Annotated[bool, _option("--all", help="Every job on this node.")] = False,
    native: Annotated[
        bool, _option("--native", help="Take C++ frames too; slower, and pauses each process some 30 ms.")
    ] = False,
    no_stacks: Annotated[
        bool, _option("--no-stacks", help="Take no stacks: only what /proc and sockets show.")
    ] = False,
    hosts: Annotated[
        str | None, _option("--hosts", metavar="A,B", help="Every job on these hosts, over OpenSSH; node[1-3] too.")
    ] = None,
    slurm_job: Annotated[
        str | None,
        _option("--slurm-job", metavar="ID", help="This Slurm job on all its nodes, over srun."),
    ] = None,
    timeout: TimeoutOption = 60.0,
    probe_timeout: ProbeTimeoutOption = 5.0,
) -> None:
    """Look at a hung or running job, without touching it: which rank is at fault, and why the others wait."""
    typed = {name for name in ("pids", "every", "hosts", "slurm_job") if _typed(context, name)}
    if typed:
        # what was typed wins over the variables and the settings file
        every = every and "every" in typed
        hosts = hosts if "hosts" in typed else None
        slurm_job = slurm_job if "slurm_job" in typed else None
    if hosts is not None or slurm_job is not None:
        from ddp_doctor.cli.hosts import examine_hosts
        from ddp_doctor.cli.ways import Misspelt, Unreachable, named_hosts, named_job, over_slurm, over_ssh

        if pids or every or (hosts is not None and slurm_job is not None):
            raise typer.BadParameter("--hosts and --slurm-job look at every job there: give one of them alone")
        try:
            if slurm_job is not None:
                ways = over_slurm(named_job(slurm_job), timeout / 4)
            else:
                ways = over_ssh(named_hosts(hosts or ""), timeout)
        except Misspelt as error:
            raise typer.BadParameter(f"{'--hosts' if slurm_job is None else '--slurm-job'}: {error}") from None
        except Unreachable as error:
            shared.out.say(f"cannot look at Slurm job {slurm_job}: {error}")
            raise typer.Exit(5) from None
        shared.out.deliver(
            examine_hosts(
                shared.out,
                ways,
                shared.selection,
                timeout,
                probe_timeout,
                stacks=not no_stacks,
                native=native,
            )
        )
    if not pids and not every:
        raise typer.BadParameter("give the PID of a process of the job, or --all for every job on this node")
    from ddp_doctor.cli.attach import examine_job

    shared.out.deliver(
        examine_job(
            shared.out,
            pids or (),
            shared.selection,
            timeout,
            probe_timeout,
            every=every,
            stacks=not no_stacks,
            native=native,
        )
    )


@app.command(hidden=True)
def observe(
    native: Annotated[bool, typer.Option("--native")] = False,
    no_stacks: Annotated[bool, typer.Option("--no-stacks")] = False,
    slurm_job: Annotated[str | None, typer.Option("--slurm-job")] = None,
    until_eof: Annotated[bool, typer.Option("--until-eof")] = False,
    timeout: TimeoutOption = 60.0,
    probe_timeout: ProbeTimeoutOption = 5.0,
) -> None:
    """Write what `attach --all` sees here as facts, for an `attach` on another host."""
    from ddp_doctor.cli.hosts import observe_here

    observe_here(timeout, probe_timeout, slurm_job, stacks=not no_stacks, native=native, until_eof=until_eof)


@app.command(context_settings={"allow_extra_args": True, "allow_interspersed_args": False})
@_reporting(needs_verdict=True)
def watch(
    context: typer.Context,
    shared: Shared,
    after: Annotated[
        float,
        _option("--after", help="Seconds that initialisation may take, from the first rank that comes to it.", min=0.1),
    ] = 120.0,
    kill: Annotated[bool, _option("--kill", help="End a job that hangs, with all it started; exit code 124.")] = False,
    timeout: TimeoutOption = 60.0,
    probe_timeout: ProbeTimeoutOption = 5.0,
) -> None:
    """Run a command (`watch -- torchrun ...`) unchanged; if initialisation does not finish in time, say why on stderr."""
    if not context.args:
        raise typer.BadParameter("give the command to run: ddp-doctor watch -- torchrun ... train.py")
    from ddp_doctor.cli.watch import watch_command

    raise typer.Exit(
        watch_command(
            shared.out,
            context.args,
            shared.selection,
            after=after,
            kill=kill,
            timeout=timeout,
            probe_timeout=probe_timeout,
        )
    )


@app.command()
@_reporting(needs_verdict=True)
def triage(
    shared: Shared,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Logs and py-spy dumps; - is stdin.")],
    timeout: TimeoutOption = 60.0,
) -> None:
    """Read logs and saved stacks of a job and name the cause if they tell it."""
    from ddp_doctor.cli.job import examine_files

    shared.out.deliver(examine_files(shared.out, paths, shared.selection, timeout))


@app.command()
@_reporting(needs_verdict=False)
def lint(
    shared: Shared,
    scripts: Annotated[
        list[Path],
        typer.Argument(metavar="SCRIPT...", help="Training scripts, notebooks, or folders of scripts.", exists=True),
    ],
    timeout: TimeoutOption = 60.0,
) -> None:
    """Find launch mistakes in source, without running it."""
    from ddp_doctor.cli.lint import examine_scripts

    shared.out.deliver(examine_scripts(shared.out, scripts, shared.selection, timeout))


@app.command()
def bundle(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[inspect FILE]", help="inspect FILE shows what is in a bundle.")
    ] = None,
    output: Annotated[Path | None, _option("--output", "-o", help="The bundle to write.")] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="PID|PATH...", help="Processes, or logs and dumps. Default: this node."),
    ] = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
    no_redact: NoRedactOption = False,
    timeout: TimeoutOption = 60.0,
    probe_timeout: ProbeTimeoutOption = 5.0,
    config: ConfigOption = None,
) -> None:
    """Collect facts, stacks and logs in one redacted file for somebody else, who reads it with triage."""
    from ddp_doctor.cli.bundle import inspect_bundle, make_bundle

    given = list(words or ())
    if given[:1] == ["inspect"]:
        if len(given) != 2:
            raise typer.BadParameter("bundle inspect takes one FILE")
        raise typer.Exit(inspect_bundle(Path(given[1]), verbose=verbose > 0))
    if given and not source:
        raise typer.BadParameter(f"bundle takes -o FILE, and --from {' '.join(given)} for what should be in it")
    if output is None:
        raise typer.BadParameter("bundle needs -o FILE")
    out = _output(context, Format.TEXT, output, Colour.NEVER, verbose, quiet, FailOn.NEVER, strict=False)
    raise typer.Exit(
        make_bundle(
            out,
            output,
            [*(source or ()), *given],
            timeout=timeout,
            probe_timeout=probe_timeout,
            redact=not no_redact,
        )
    )


@app.command()
def recipe(
    launcher: Annotated[Launch, typer.Argument(help="What starts the ranks of the job.")],
    nodes: Annotated[int, _option("--nodes", help="Nodes of the job.", min=1, max=100_000)] = 2,
    nproc: Annotated[int, _option("--nproc", help="Ranks per node, as the job has.", min=1, max=1024)] = 8,
    image: Annotated[
        str, _option("--image", help="Image of the job, with ddp-doctor in it (Kubernetes).")
    ] = "REGISTRY/IMAGE:TAG",
) -> None:
    """Print a script or manifest that runs the doctor on the nodes of a job, through the launcher the job has."""
    from ddp_doctor.cli.catalogue import show
    from ddp_doctor.cli.recipe import recipe_text

    show(recipe_text(launcher.value, nodes=nodes, nproc=nproc, image=image).rstrip("\n"))


@app.command()
def explain(
    name: Annotated[str, typer.Argument(metavar="ID|NAME", help="A finding, such as DDP103 or thread-launch.")],
    format: ListingOption = Listing.TEXT,
) -> None:
    """Print the page of a finding: what you see, why it hangs, how it is known, the fix."""
    from ddp_doctor.cli.catalogue import explain_check

    explain_check(name, as_json=format is Listing.JSON)


@app.command()
def checks(format: ListingOption = Listing.TEXT) -> None:
    """List every check."""
    from ddp_doctor.cli.catalogue import list_checks

    list_checks(as_json=format is Listing.JSON)


def _can_become_a_file(path: Path | None) -> None:
    """Raises BadParameter where nothing can be written to what was given: better at once than after the examination."""
    if path is None:
        return
    if _looked_up(path)[0]:
        raise typer.BadParameter(f"cannot write {path}: it is a folder")
    if not _looked_up(path.absolute().parent)[0]:
        raise typer.BadParameter(f"cannot write {path}: no such folder")


def _looked_up(path: Path) -> tuple[bool, bool]:
    """Whether it is a folder, and whether it exists; neither where that may not be asked, as for too long a name."""
    try:
        return path.is_dir(), path.exists()
    except OSError:
        return False, False


def _shared_folder(given: str | None) -> tuple[Path | None, bool]:
    """The folder, and whether this host sees it. Raises BadParameter where it can be none on any host.

    That just one of several hosts does not see it is for the report on all of them.
    """
    if given is None:
        return None, True
    if not given:
        raise typer.BadParameter("--share '': no such folder")
    from ddp_doctor.meeting.task import Task

    look = Task(lambda: _looked_up(Path(given)), "shared folder")
    look.join(SHARE_SECONDS)
    is_folder, exists = look.result or (True, True)  # a server that is slow says nothing against it
    if exists and not is_folder:
        raise typer.BadParameter(f"--share {given}: no folder")
    return Path(given), is_folder


def _output(
    context: typer.Context,
    format: Format,
    output: Path | None,
    color: Colour,
    verbose: int,
    quiet: bool,
    fail_on: FailOn,
    strict: bool,
    no_redact: bool = False,
    needs_verdict: bool = False,
) -> Output:
    _can_become_a_file(output)
    return Output(
        format=format.value,
        path=output,
        colour=color.value,
        verbose=verbose,
        quiet=quiet,
        fail_on=fail_on.value,
        strict=strict,
        redact=not no_redact,
        needs_verdict=needs_verdict,
        started=context.obj["started"],
    )


def _selection(select: list[str] | None, ignore: list[str] | None, context: typer.Context) -> Any:
    if not select and not ignore and not context.obj["reasons"]:
        return None  # all checks; knowing their names costs each rank of a job an import
    from ddp_doctor.cli.catalogue import selection

    return selection(_split(select), dict.fromkeys(_split(ignore), "") | context.obj["reasons"])


def _split(values: list[str] | None) -> list[str]:
    return [entry.strip() for value in values or () for entry in value.split(",") if entry.strip()]


def application(arguments: list[str]) -> int:
    """Parse and run; returns the exit code."""
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    try:
        settings, reasons = _settings(arguments, command)
    except config.ConfigError as error:
        print(f"ddp-doctor: {error}", file=sys.stderr)
        return 2
    started = time.monotonic()
    command.main(
        arguments,
        prog_name="ddp-doctor",
        default_map=settings,
        obj={"started": started, "reasons": reasons},
    )
    return 0


def _here() -> Path:
    """The working directory; where it was deleted, the root, which holds no settings of ours."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")


def _settings(arguments: list[str], command: TyperGroup) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings file as click's default_map, per command, and the reasons given for ignored checks."""
    named = [after for before, after in itertools.pairwise(arguments) if before == "--config"]
    named += [word.partition("=")[2] for word in arguments if word.startswith("--config=")]
    given = named[0] if named else os.environ.get("DDP_DOCTOR_CONFIG")
    path = Path(given) if given else config.find(_here())
    if path is None:
        return {}, {}
    options = {
        name.lstrip("-"): parameter.name
        for each in command.commands.values()
        for parameter in each.params
        for name in parameter.opts
        if name.startswith("--") and name not in ("--config", "--help")
    }
    types: dict[str | None, Any] = {}
    for registered in app.registered_commands:
        types.update(get_type_hints(registered.callback).items())
    table = config.read(path, {name: _takes(types[parameter]) for name, parameter in options.items()})
    ignore = table.pop("ignore", [])
    reasons = {str(key): str(reason) for key, reason in ignore.items()} if isinstance(ignore, dict) else {}
    values = {str(options[key]): value for key, value in table.items()}
    if not isinstance(ignore, dict):
        values["ignore"] = ignore
    for key in ("select", "ignore"):
        if isinstance(values.get(key), str):
            values[key] = [values[key]]
    return dict.fromkeys(command.commands, values), reasons


def _takes(type_: Any) -> config.Value:
    """What an option of a type takes in a settings file."""
    inner = [each for each in get_args(type_) or (type_,) if each is not type(None)]
    if get_origin(type_) is list or get_origin(inner[0]) is list:
        return "a list of texts"
    words: dict[Any, config.Value] = {bool: "true or false", int: "a whole number", float: "a number"}
    return words.get(inner[0], "a text")
