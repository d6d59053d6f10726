-- An `nsys export --type sqlite` file into the tables of trace_tables.sql. Runs on exports of schema 3.20 to 3.25.
-- @TABLE@ is the table as this export names it (some carry _V2, _V3); @TABLE.column@ is the column, or NULL where the
-- export has none. Tables appear only where something was recorded. globalPid is globalTid without its lowest 24 bits.

INSERT INTO name SELECT id, value FROM StringIds
WHERE id IN (SELECT NULL
--@if CUPTI_ACTIVITY_KIND_KERNEL
    UNION SELECT demangledName FROM @CUPTI_ACTIVITY_KIND_KERNEL@
--@endif
);

-- Push/pop (59) and start/end (60) ranges that began and ended on one thread. Registered names are in StringIds.
--@if NVTX_EVENTS
INSERT INTO rng
SELECT COALESCE(s.value, e.text, ''), e.start, e.end, e.globalTid, e.globalTid & 0xFFFFFFFFFF000000
FROM @NVTX_EVENTS@ e LEFT JOIN StringIds s ON s.id = @NVTX_EVENTS.textId@
WHERE e.eventType IN (59, 60) AND e.end IS NOT NULL AND e.globalTid IS NOT NULL
  AND COALESCE(@NVTX_EVENTS.endGlobalTid@, e.globalTid) = e.globalTid;
--@endif

--@if CUPTI_ACTIVITY_KIND_RUNTIME
INSERT INTO api
SELECT s.value, r.start, r.end, r.globalTid, r.globalTid & 0xFFFFFFFFFF000000, r.correlationId
FROM @CUPTI_ACTIVITY_KIND_RUNTIME@ r JOIN StringIds s ON s.id = r.nameId;
--@endif

--@if CUPTI_ACTIVITY_KIND_KERNEL
INSERT INTO op
SELECT 'kernel', demangledName, start, end, deviceId, streamId, correlationId, globalPid, @CUPTI_ACTIVITY_KIND_KERNEL.graphNodeId@
FROM @CUPTI_ACTIVITY_KIND_KERNEL@;
--@endif

-- Names of copies are made from their kinds (nsys_trace.py), which this number carries.
--@if CUPTI_ACTIVITY_KIND_MEMCPY
INSERT INTO op
SELECT 'memcpy', -1000 - 100 * copyKind - 10 * COALESCE(srcKind, 7) - COALESCE(dstKind, 7), start, end, deviceId, streamId,
       correlationId, globalPid, @CUPTI_ACTIVITY_KIND_MEMCPY.graphNodeId@
FROM @CUPTI_ACTIVITY_KIND_MEMCPY@;
--@endif

--@if CUPTI_ACTIVITY_KIND_MEMSET
INSERT INTO op
SELECT 'memset', -2, start, end, deviceId, streamId, correlationId, globalPid, @CUPTI_ACTIVITY_KIND_MEMSET.graphNodeId@
FROM @CUPTI_ACTIVITY_KIND_MEMSET@;
--@endif

--@if CUPTI_ACTIVITY_KIND_GRAPH_TRACE
INSERT INTO op
SELECT 'graph', -3, start, end, deviceId, streamId, correlationId, globalPid, NULL
FROM @CUPTI_ACTIVITY_KIND_GRAPH_TRACE@;
--@endif

--@if CUDA_GRAPH_NODE_EVENTS
INSERT INTO node
SELECT graphNodeId, originalGraphNodeId, start, globalTid, globalTid & 0xFFFFFFFFFF000000
FROM @CUDA_GRAPH_NODE_EVENTS@;
--@endif
