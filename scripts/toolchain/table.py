"""Every version that this project builds or asks for, written once.

The Go modules next to this file (`pulumi/go.mod` and so on) pin the same versions for the build;
a test holds the two together.

    TOOLS["kubectl"].version        # v1.35.4
    TOOLS["kubectl"].folder         # kubernetes-v1.35.4
"""

from __future__ import annotations

from dataclasses import dataclass

PULUMI = "v3.250.0"
KUBERNETES = "v1.35.4"
PREVIOUS_KUBERNETES = "v1.34.4"
COREDNS = "v1.12.4"
ETCD = "v3.5.21"
TRAINING_OPERATOR = "v1.9.2"
KARPENTER = "v1.14.0"
DEVICE_PLUGIN = "v0.20.0"  # of NVIDIA; on one machine an image of this name has localcloud's own
# The same release: as a Go module Prometheus 3.13.5 is v0.313.5.
PROMETHEUS, PROMETHEUS_MODULE = "v3.13.5", "v0.313.5"
# pulumi-kubernetes 4 renders charts with Helm 3 (helm.sh/helm/v3 in its go.mod), not with Helm 4.
HELM = "v3.22.0"
HELM_KUBERNETES = ("1", "37")
TORCH = "2.14.1"

_STRIP = "-s -w"


@dataclass(frozen=True)
class System:
    """A distribution that the set-up works on. The nodes' image is made from its packages."""

    name: str
    distribution: str
    """`ID` in os-release."""
    codename: str
    """`VERSION_CODENAME` in os-release, and the name of its archive."""
    python: tuple[int, int]
    """Of its package python3, which the pods have. They mount the trainer's packages, which are built for it."""
    keyring: tuple[str, str]
    """The package with the keys of its archive, and one of them."""

    @property
    def python_name(self) -> str:
        """As in `python3.11`."""
        return ".".join(map(str, self.python))


_DEBIAN_KEYRING = ("debian-archive-keyring", "/usr/share/keyrings/debian-archive-keyring.gpg")
_UBUNTU_KEYRING = ("ubuntu-keyring", "/usr/share/keyrings/ubuntu-archive-keyring.gpg")
SYSTEMS = (
    System("Debian 12", "debian", "bookworm", (3, 11), _DEBIAN_KEYRING),
    System("Debian 13", "debian", "trixie", (3, 13), _DEBIAN_KEYRING),
    System("Ubuntu 24.04", "ubuntu", "noble", (3, 12), _UBUNTU_KEYRING),
)


@dataclass(frozen=True)
class Tool:
    """One binary: what builds it, and how to ask another one for its version."""

    name: str
    module: str
    """The folder next to this file with the go.mod that pins it, and with a main.go if the main is our own."""
    package: str
    version: str
    version_arguments: tuple[str, ...]
    """What makes the binary print its version, without a cluster or a network. Empty if it can't print its version;
    then only the build in the cache is used."""
    ldflags: str = _STRIP
    tags: str = ""
    """Of the Go build, with commas between them. Equal for all tools of a module, as are `ldflags`: one command builds
    them."""
    static: bool = False
    """It goes into an image that holds nothing else, so a dynamically linked one doesn't fit."""

    @property
    def folder(self) -> str:
        """Where it lies under `tools/` in the cache: a version that is no longer the newest stays where it was."""
        return f"{self.module.removesuffix('_previous')}-{self.version}"


def _kubernetes(name: str, *version_arguments: str, version: str = KUBERNETES, module: str = "kubernetes") -> Tool:
    major, minor, _ = version.removeprefix("v").split(".")
    values = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "unknown",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    # kubectl reports the client's copy of the version package, the others the component's.
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    flags = [f"-X {package}.{key}={value}" for package in packages for key, value in values.items()]
    return Tool(
        name=name,
        module=module,
        package=f"k8s.io/kubernetes/cmd/{name}",
        version=version,
        version_arguments=version_arguments or ("--version",),
        ldflags=" ".join([_STRIP, *flags]),
    )


def _helm() -> Tool:
    # What a chart is rendered for if nothing else is said: the version of Kubernetes that this Helm is built with.
    major, minor = HELM_KUBERNETES
    versions = {f"chartutil.k8sVersion{part}": value for part, value in (("Major", major), ("Minor", minor))}
    flags = [f"-X helm.sh/helm/v3/pkg/{key}={value}" for key, value in versions.items()]
    return Tool(
        name="helm",
        module="helm",
        package="helm.sh/helm/v3/cmd/helm",
        version=HELM,
        version_arguments=("version", "--template={{.Version}}"),
        ldflags=" ".join([_STRIP, f"-X helm.sh/helm/v3/internal/version.version={HELM}", *flags]),
    )


# The longest builds come first, since two run at the same time.
_ALL = (
    _kubernetes("kube-apiserver"),
    _kubernetes("kubectl", "version", "--client"),
    _kubernetes("kube-controller-manager"),
    _kubernetes("kube-scheduler"),
    _kubernetes("kubelet"),
    _kubernetes("kube-proxy"),
    Tool(
        name="pulumi",
        module="pulumi",
        package="github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
        version=PULUMI,
        version_arguments=("version",),
        ldflags=f"{_STRIP} -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version={PULUMI}",
    ),
    _helm(),
    Tool(
        name="etcd",
        module="etcd",
        package="go.etcd.io/etcd/server/v3",
        version=ETCD,
        version_arguments=("--version",),
        static=True,
    ),
    Tool(
        name="etcdctl",
        module="etcd",
        package="go.etcd.io/etcd/etcdctl/v3",
        version=ETCD,
        version_arguments=("version",),
        static=True,
    ),
    Tool(
        name="karpenter",
        module="karpenter",
        package="github.com/aws/karpenter-provider-aws/cmd/controller",
        version=KARPENTER,
        version_arguments=(),
        ldflags=f"{_STRIP} -X sigs.k8s.io/karpenter/pkg/operator.Version={KARPENTER.removeprefix('v')}",
        static=True,
    ),
    Tool(
        name="coredns",
        module="coredns",
        package="tidewater.dev/toolchain/coredns",
        version=COREDNS,
        version_arguments=("-version",),
        static=True,
    ),
)

TOOLS = {tool.name: tool for tool in _ALL}

CHARTS = ("karpenter", "karpenter-crd")
"""The charts in Karpenter's module: its controller, and the definitions of its resources."""


def _prometheus(name: str) -> Tool:
    return Tool(
        name=name,
        module="prometheus",
        package=f"github.com/prometheus/prometheus/cmd/{name}",
        version=PROMETHEUS_MODULE,
        version_arguments=(),  # it prints the other one
        ldflags=f"{_STRIP} -X github.com/prometheus/common/version.Version={PROMETHEUS.removeprefix('v')}",
        # Of the services that it can find its targets by, only Kubernetes: the others take twice as long to build.
        tags="remove_all_sd,enable_kubernetes_sd",
        static=True,
    )


MONITORING_TOOLS = {name: _prometheus(name) for name in ("prometheus", "promtool")}
"""What the setting `monitoring` and the tests need: `install` doesn't build it, `monitoring` and `install-tests` do."""

_OF_BENCHMARKS = (
    Tool(
        name="training-operator",
        module="training_operator",
        package="github.com/kubeflow/training-operator/cmd/training-operator.v1",
        version=TRAINING_OPERATOR,
        version_arguments=(),
    ),
)

PREVIOUS_TOOLS = {
    name: _kubernetes(name, version=PREVIOUS_KUBERNETES, module="kubernetes_previous")
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
}
"""What clusters of the version before run, from which upgrades are rehearsed: `install` doesn't build it."""

BENCH_TOOLS = {tool.name: tool for tool in _OF_BENCHMARKS}
"""What only benchmarks run: `install` doesn't build it."""
