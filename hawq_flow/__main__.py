"""``python -m hawq_flow`` is the ``hawq-flow`` command."""

from hawq_flow.cli import main

if __name__ == "__main__":
    main()
