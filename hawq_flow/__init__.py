"""hawq_flow: a PyTorch network to FPGA firmware, in integers all the way, with proof of equality."""

__version__ = "0.1.0"
