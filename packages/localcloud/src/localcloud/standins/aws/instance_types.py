"""EC2's description of an instance type in the form of the function `ec2.getInstanceType`. Pure.

https://github.com/hashicorp/terraform-provider-aws (internal/service/ec2/ec2_instance_type_data_source.go): what EC2
doesn't say is 0, empty or false, as for every computed value of the official plug-in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Tree = dict[str, Any]

# Output → the path in EC2's description.
_FLAGS: Final = {
    "autoRecoverySupported": "AutoRecoverySupported",
    "bareMetal": "BareMetal",
    "burstablePerformanceSupported": "BurstablePerformanceSupported",
    "currentGeneration": "CurrentGeneration",
    "dedicatedHostsSupported": "DedicatedHostsSupported",
    "efaSupported": "NetworkInfo.EfaSupported",
    "enaSrdSupported": "NetworkInfo.EnaSrdSupported",
    "encryptionInTransitSupported": "NetworkInfo.EncryptionInTransitSupported",
    "freeTierEligible": "FreeTierEligible",
    "hibernationSupported": "HibernationSupported",
    "instanceStorageSupported": "InstanceStorageSupported",
    "ipv6Supported": "NetworkInfo.Ipv6Supported",
}
_NUMBERS: Final = {
    "defaultCores": "VCpuInfo.DefaultCores",
    "defaultNetworkCardIndex": "NetworkInfo.DefaultNetworkCardIndex",
    "defaultThreadsPerCore": "VCpuInfo.DefaultThreadsPerCore",
    "defaultVcpus": "VCpuInfo.DefaultVCpus",
    "ebsPerformanceBaselineBandwidth": "EbsInfo.EbsOptimizedInfo.BaselineBandwidthInMbps",
    "ebsPerformanceBaselineIops": "EbsInfo.EbsOptimizedInfo.BaselineIops",
    "ebsPerformanceBaselineThroughput": "EbsInfo.EbsOptimizedInfo.BaselineThroughputInMBps",
    "ebsPerformanceMaximumBandwidth": "EbsInfo.EbsOptimizedInfo.MaximumBandwidthInMbps",
    "ebsPerformanceMaximumIops": "EbsInfo.EbsOptimizedInfo.MaximumIops",
    "ebsPerformanceMaximumThroughput": "EbsInfo.EbsOptimizedInfo.MaximumThroughputInMBps",
    "efaMaximumInterfaces": "NetworkInfo.EfaInfo.MaximumEfaInterfaces",
    "maximumIpv4AddressesPerInterface": "NetworkInfo.Ipv4AddressesPerInterface",
    "maximumIpv6AddressesPerInterface": "NetworkInfo.Ipv6AddressesPerInterface",
    "maximumNetworkCards": "NetworkInfo.MaximumNetworkCards",
    "maximumNetworkInterfaces": "NetworkInfo.MaximumNetworkInterfaces",
    "memorySize": "MemoryInfo.SizeInMiB",
    "sustainedClockSpeed": "ProcessorInfo.SustainedClockSpeedInGhz",
    "totalFpgaMemory": "FpgaInfo.TotalFpgaMemoryInMiB",
    "totalGpuMemory": "GpuInfo.TotalGpuMemoryInMiB",
    "totalInferenceMemory": "InferenceAcceleratorInfo.TotalInferenceMemoryInMiB",
    "totalInstanceStorage": "InstanceStorageInfo.TotalSizeInGB",
    "totalMediaMemory": "MediaAcceleratorInfo.TotalMediaMemoryInMiB",
    "totalNeuronDeviceMemory": "NeuronInfo.TotalNeuronDeviceMemoryInMiB",
}
_TEXTS: Final = {
    "ebsEncryptionSupport": "EbsInfo.EncryptionSupport",
    "ebsNvmeSupport": "EbsInfo.NvmeSupport",
    "ebsOptimizedSupport": "EbsInfo.EbsOptimizedSupport",
    "enaSupport": "NetworkInfo.EnaSupport",
    "hypervisor": "Hypervisor",
    "instanceType": "InstanceType",
    "networkPerformance": "NetworkInfo.NetworkPerformance",
    "nitroEnclavesSupport": "NitroEnclavesSupport",
    "nitroTpmSupport": "NitroTpmSupport",
    "phcSupport": "PhcSupport",
}
_LISTS: Final = {
    "bandwidthWeightings": "NetworkInfo.BandwidthWeightings",
    "bootModes": "SupportedBootModes",
    "nitroTpmSupportedVersions": "NitroTpmInfo.SupportedVersions",
    "supportedArchitectures": "ProcessorInfo.SupportedArchitectures",
    "supportedCpuFeatures": "ProcessorInfo.SupportedFeatures",
    "supportedPlacementStrategies": "PlacementGroupInfo.SupportedStrategies",
    "supportedRootDeviceTypes": "SupportedRootDeviceTypes",
    "supportedUsagesClasses": "SupportedUsageClasses",
    "supportedVirtualizationTypes": "SupportedVirtualizationTypes",
    "validCores": "VCpuInfo.ValidCores",
    "validThreadsPerCores": "VCpuInfo.ValidThreadsPerCore",
}


def outputs(found: Mapping[str, Any]) -> Tree:
    """Return the outputs for one of the `InstanceTypes` of DescribeInstanceTypes."""
    devices: Mapping[str, tuple[str, Callable[[Tree], Tree]]] = {
        "fpgas": ("FpgaInfo.Fpgas", _device),
        "gpuses": ("GpuInfo.Gpus", _device),
        "inferenceAccelerators": ("InferenceAcceleratorInfo.Accelerators", _device),
        "mediaAccelerators": ("MediaAcceleratorInfo.Accelerators", _device),
        "instanceDisks": ("InstanceStorageInfo.Disks", _disk),
        "networkCards": ("NetworkInfo.NetworkCards", _card),
        "neuronDevices": ("NeuronInfo.NeuronDevices", _neuron),
    }
    return {
        "id": found["InstanceType"],
        **{name: bool(_at(found, path)) for name, path in _FLAGS.items()},
        **{name: _at(found, path) or 0 for name, path in _NUMBERS.items()},
        **{name: _at(found, path) or "" for name, path in _TEXTS.items()},
        **{name: list(_at(found, path) or []) for name, path in _LISTS.items()},
        **{name: [form(each) for each in _at(found, path) or []] for name, (path, form) in devices.items()},
    }


def _at(found: Mapping[str, Any], path: str) -> Any:
    value: Any = found
    for key in path.split("."):
        value = (value or {}).get(key)
    return value


def _device(found: Tree) -> Tree:
    return {
        "count": found.get("Count", 0),
        "manufacturer": found.get("Manufacturer", ""),
        "memorySize": _at(found, "MemoryInfo.SizeInMiB") or 0,
        "name": found.get("Name", ""),
    }


def _disk(found: Tree) -> Tree:
    return {"count": found.get("Count", 0), "size": found.get("SizeInGB", 0), "type": found.get("Type", "")}


def _card(found: Tree) -> Tree:
    return {
        "baselineBandwidth": found.get("BaselineBandwidthInGbps", 0),
        "index": found.get("NetworkCardIndex", 0),
        "maximumInterfaces": found.get("MaximumNetworkInterfaces", 0),
        "peakBandwidth": found.get("PeakBandwidthInGbps", 0),
        "performance": found.get("NetworkPerformance", ""),
    }


def _neuron(found: Tree) -> Tree:
    return {
        "coreCount": _at(found, "CoreInfo.Count") or 0,
        "coreVersion": _at(found, "CoreInfo.Version") or 0,
        "count": found.get("Count", 0),
        "memorySize": _at(found, "MemoryInfo.SizeInMiB") or 0,
        "name": found.get("Name", ""),
    }
