"""Asks the CUDA driver about the graph under capture.

Through `libcuda`, whose symbols keep their signatures across CUDA 12 and 13; the runtime's do not
(cudaStreamGetCaptureInfo has six arguments in 12, seven in 13). Signatures: cuda.h, sections "Stream Management" and
"Graph Management".
"""

from __future__ import annotations

import ctypes
import sys

import torch

_CAPTURING = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
_OPERATIONS = (0, 1, 2)  # CU_GRAPH_NODE_TYPE_KERNEL, _MEMCPY, _MEMSET: what a trace shows as work of the GPU
_CHILD_GRAPH = 4  # CU_GRAPH_NODE_TYPE_GRAPH


class GraphOperations:
    """Called during a capture: the number of kernel, memcpy and memset nodes on torch's current stream so far.
    RuntimeError if nothing is being captured, or if the driver refuses, so that a count of zero is always real."""

    def __init__(self) -> None:
        name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
        try:
            self._driver = ctypes.CDLL(name)
        except OSError as error:
            raise RuntimeError(f"nodes: the CUDA driver's library {name} cannot be loaded: {error}") from error

    def __call__(self) -> int:
        graph = self._captured_graph(torch.cuda.current_stream().cuda_stream)
        num_nodes = ctypes.c_size_t()
        self._call("cuGraphGetNodes", graph, None, ctypes.byref(num_nodes))
        nodes = (ctypes.c_void_p * num_nodes.value)()
        if num_nodes.value:
            self._call("cuGraphGetNodes", graph, nodes, ctypes.byref(num_nodes))
        kinds = [self._kind(node) for node in nodes]
        if _CHILD_GRAPH in kinds:
            raise RuntimeError("nodes: a captured phase holds a child graph, whose operations are not counted")
        return sum(kind in _OPERATIONS for kind in kinds)

    def _captured_graph(self, stream: int) -> ctypes.c_void_p:
        status, number, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
        edges_from, num_edges = ctypes.c_void_p(), ctypes.c_size_t()
        outs = [ctypes.byref(out) for out in (status, number, graph, edges_from)]
        if hasattr(self._driver, "cuStreamGetCaptureInfo_v3"):
            # Drivers from 12.3 on: what hangs on programmatic launches has edges with data, which _v2 does not give.
            edge_data = ctypes.c_void_p()
            outs.append(ctypes.byref(edge_data))
            name = "cuStreamGetCaptureInfo_v3"
        else:
            name = "cuStreamGetCaptureInfo_v2"
        self._call(name, ctypes.c_void_p(stream), *outs, ctypes.byref(num_edges))
        if status.value != _CAPTURING:
            raise RuntimeError("nodes: nothing is being captured on the current stream")
        return graph

    def _kind(self, node: int | None) -> int:
        kind = ctypes.c_int(-1)
        self._call("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
        return kind.value

    def _call(self, name: str, *arguments: object) -> None:
        result = getattr(self._driver, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"nodes: {name} failed with CUDA driver error {result}")
