"""`python -m training`."""

from training.cli import console

if __name__ == "__main__":
    console()
