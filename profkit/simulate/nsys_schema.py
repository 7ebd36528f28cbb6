"""Tables of the simulated nsys export: those of Nsight Systems 2026.2 (schema 3.25) that a simulation fills."""

from __future__ import annotations

_ROW = "start INTEGER NOT NULL, end INTEGER NOT NULL"
_WHERE = (
    "deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, "
    "correlationId INTEGER, globalPid INTEGER"
)
_CALL = f"{_ROW}, eventClass INTEGER NOT NULL, globalTid INTEGER"

TABLES = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "ThreadNames": "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER",
    "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
    "TARGET_INFO_SYSTEM_ENV": "globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL, "
    "nameEnum INTEGER NOT NULL, value TEXT NOT NULL",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT, systemClockNs INTEGER",
    "TARGET_INFO_GPU": "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, isDiscrete INTEGER, "
    "l2CacheSize INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, "
    "uuid TEXT, cuDevice INTEGER, computeMajor INTEGER, computeMinor INTEGER",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL, uuid TEXT",
    "TARGET_INFO_CUDA_CONTEXT_INFO": "nullStreamId INTEGER NOT NULL, hwId INTEGER NOT NULL, vmId INTEGER NOT NULL, "
    "processId INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, parentContextId INTEGER, "
    "isGreenContext INTEGER",
    "TARGET_INFO_CUDA_STREAM": "streamId INTEGER NOT NULL, hwId INTEGER NOT NULL, vmId INTEGER NOT NULL, "
    "processId INTEGER NOT NULL, contextId INTEGER NOT NULL, priority INTEGER NOT NULL, flag INTEGER NOT NULL",
    "META_DATA_CAPTURE": "name TEXT NOT NULL, value TEXT",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_ROW}, {_WHERE}, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, "
    "mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, "
    "gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, "
    "blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, "
    "dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, "
    "gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER, "
    "graphId INTEGER, clusterX INTEGER, clusterY INTEGER, clusterZ INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_ROW}, {_WHERE}, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, "
    "deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER, srcDeviceId INTEGER, srcContextId INTEGER, "
    "dstDeviceId INTEGER, dstContextId INTEGER, migrationCause INTEGER, graphNodeId INTEGER, virtualAddress INTEGER, "
    "copyCount INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_ROW}, {_WHERE}, value INTEGER NOT NULL, bytes INTEGER NOT NULL, "
    "graphNodeId INTEGER, memKind INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_ROW}, {_WHERE}, graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_RUNTIME": f"{_CALL}, correlationId INTEGER, nameId INTEGER NOT NULL, "
    "returnValue INTEGER NOT NULL, callchainId INTEGER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_ROW}, {_WHERE}, deprecatedSyncType INTEGER, "
    "syncType INTEGER NOT NULL, eventId INTEGER NOT NULL, eventSyncId INTEGER",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": f"timestamp INTEGER, {_WHERE}, eventId INTEGER NOT NULL, eventSyncId INTEGER",
    "CUDA_GRAPH_NODE_EVENTS": f"{_CALL}, nameId INTEGER, graphNodeId INTEGER NOT NULL, originalGraphNodeId INTEGER",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, "
    "category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, "
    "domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, "
    "int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT",
    "OSRT_API": f"{_CALL}, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, nestingLevel INTEGER, "
    "callchainId INTEGER NOT NULL",
    "SCHED_EVENTS": "start INTEGER NOT NULL, cpu INTEGER NOT NULL, isSchedIn INTEGER NOT NULL, globalTid INTEGER",
    "PROFILER_OVERHEAD": f"{_ROW}, globalTid INTEGER, nameId INTEGER NOT NULL, overheadType INTEGER NOT NULL",
}
LAZY = frozenset({
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUDA_GRAPH_NODE_EVENTS", "NVTX_EVENTS", "OSRT_API", "SCHED_EVENTS",
    "PROFILER_OVERHEAD",
})  # fmt: skip
"""Tables that exist only where they have rows, as in a real export."""

_DEVICE_ROW = "start, end, deviceId, streamId, correlationId, globalPid"
_SHAPE = "gridX, gridY, gridZ, blockX, blockY, blockZ, dynamicSharedMemory"
_UNUSED = "localMemoryPerThread=0, localMemoryTotal=0, clusterX=0, clusterY=0, clusterZ=0"
COLUMNS = {
    "kernels": (
        "CUPTI_ACTIVITY_KIND_KERNEL",
        f"{_DEVICE_ROW}, demangledName, shortName, registersPerThread, {_SHAPE}, graphNodeId, graphId, gridId",
        f"contextId=1, launchType=1, cacheConfig=1, staticSharedMemory=0, {_UNUSED}",
    ),
    "copies": (
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        f"{_DEVICE_ROW}, bytes, copyKind, srcKind, dstKind, srcDeviceId, dstDeviceId",
        "contextId=1, copyCount=1",
    ),
    "memsets": (
        "CUPTI_ACTIVITY_KIND_MEMSET",
        f"{_DEVICE_ROW}, bytes, memKind",
        "contextId=1, value=0",
    ),
    "graphs": (
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        f"{_DEVICE_ROW}, graphId, graphExecId",
        "contextId=1",
    ),
    "calls": (
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "start, end, eventClass, globalTid, correlationId, nameId",
        "returnValue=0",
    ),
    "syncs": (
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        f"{_DEVICE_ROW}, syncType, eventId",
        "contextId=1",
    ),
    "events": (
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
        "deviceId, streamId, correlationId, globalPid, eventId",
        "contextId=1",
    ),
    "nodes": (
        "CUDA_GRAPH_NODE_EVENTS",
        "start, end, globalTid, graphNodeId, originalGraphNodeId",
        "eventClass=77",
    ),
    "ranges": (
        "NVTX_EVENTS",
        "start, end, eventType, text, globalTid, category, domainId, int64Value",
        "rangeId=NULL",
    ),
    "os_calls": (
        "OSRT_API",
        "start, end, globalTid, nameId",
        "eventClass=27, returnValue=0, nestingLevel=0, callchainId=0",
    ),
    "sched": ("SCHED_EVENTS", "start, globalTid, isSchedIn", "cpu=0"),
    "overheads": ("PROFILER_OVERHEAD", "start, end, globalTid, nameId", "overheadType=3"),
}  # fmt: skip
"""Table of the recorder -> (table, columns that its rows fill, columns that are the same in every row)."""


def create(table: str) -> str:
    return f"CREATE TABLE {table} ({TABLES[table]})"


def insert(kind: str) -> str:
    """The statement that adds rows of a table of the recorder."""
    table, own, fixed = COLUMNS[kind]
    names, values = zip(*(pair.split("=") for pair in fixed.split(", ")), strict=True)
    marks = ", ".join("?" for _ in own.split(", "))
    return f"INSERT INTO {table} ({own}, {', '.join(names)}) VALUES ({marks}, {', '.join(values)})"
