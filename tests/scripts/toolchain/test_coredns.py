"""CoreDNS has a main of our own, with the plug-ins that a Corefile here may name."""

from __future__ import annotations

import re
import subprocess

import pytest
from localcloud.kube.addon_manifests import COREFILE

from scripts import toolchain

# As EKS's addon has it, so most `corefile`s in an addon's configuration are this one with another line.
# https://docs.aws.amazon.com/eks/latest/userguide/managing-coredns.html
OF_EKS = """.:53 {
    errors
    health {
        lameduck 5s
      }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
      pods insecure
      fallthrough in-addr.arpa ip6.arpa
    }
    prometheus :9153
    forward . /etc/resolv.conf
    cache 30
    loop
    reload
    loadbalance
}
"""


@pytest.mark.parametrize("corefile", [pytest.param(COREFILE, id="of localcloud"), pytest.param(OF_EKS, id="of EKS")])
def test_coredns_has_the_plug_ins_of_a_corefile(corefile: str) -> None:
    named = set(re.findall(r"^    (\w+)", corefile, re.MULTILINE))
    assert len(named) >= 8
    listed = subprocess.run([toolchain.binary("coredns"), "-plugins"], capture_output=True, text=True, check=True)
    assert named <= set(listed.stdout.split())
