# expect: DDP601 error line 10
from accelerate import Accelerator


def main():
    accelerator = Accelerator()
    state = {"step": 1}
    if accelerator.is_main_process:
        print("saving", state)
        accelerator.wait_for_everyone()


main()
