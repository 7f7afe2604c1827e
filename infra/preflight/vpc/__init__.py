"""Whether an existing VPC is as the stack needs it.

    vpc.mistakes(stack, found, zones), vpc.warnings(stack, found)

checks   what AWS says of it as plain data, and what is wrong with that; pure
files    the same for an existing file system; asks for it too
lustre   the same for one of FSx for Lustre
lookup   asks for it, at the same time as the rest of the preflight asks
"""

from infra.preflight.vpc.checks import Vpc, crowded, known, mistakes, warnings

__all__ = ["Vpc", "crowded", "known", "mistakes", "warnings"]
