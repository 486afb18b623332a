"""``python -m fixnorm``, and ``torchrun -m fixnorm`` for many processes."""

from fixnorm.cli import main

if __name__ == "__main__":
    main()
