"""The Protocols between layers: what the controller needs from engines, GPU vendors, transports and the clock."""

from agentless.ports.clock import Clock
from agentless.ports.engine import ClusterEngine, ContainerEngine, Engine, HostEngine
from agentless.ports.engine_parts import (
    EnvCommands,
    FileCommands,
    ImageCommands,
    Reading,
    TerminalCommands,
    VolumeCommands,
)
from agentless.ports.gpus import GpuVendor, Probe, ScriptRenderer
from agentless.ports.transport import Duplex, Shell, Terminal, Transport

__all__ = [
    "Clock",
    "ClusterEngine",
    "ContainerEngine",
    "Duplex",
    "Engine",
    "EnvCommands",
    "FileCommands",
    "GpuVendor",
    "HostEngine",
    "ImageCommands",
    "Probe",
    "Reading",
    "ScriptRenderer",
    "Shell",
    "Terminal",
    "TerminalCommands",
    "Transport",
    "VolumeCommands",
]
