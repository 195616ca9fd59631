"""The bundle that an FPGA team is handed: everything made of one network, and the means to prove it without us.

``write`` makes the archive, ``check`` proves one from Python; ``verify.sh`` inside proves it with a shell and g++. See
docs/handover.md for the layout, which is versioned.

Modules: ``contents`` (what a bundle is made of), ``bundle`` (its files), ``contract`` and ``fixed_point`` (the ports
and how data becomes integers), ``scripts`` (``verify.sh``, ``README.md``), ``hls_testbench`` and ``rtl_testbench``,
``licences``, ``archive``, ``verifying``.
"""

from hawq_flow.handover.archive import SUFFIX
from hawq_flow.handover.bundle import write
from hawq_flow.handover.contents import Contents, HandoverError
from hawq_flow.handover.verifying import Checked, check

__all__ = ["SUFFIX", "Checked", "Contents", "HandoverError", "check", "write"]
