-- What every trace becomes before it is analysed, whatever tool made it. Times: integer ns on the trace's clock.

CREATE TEMP TABLE name(id INTEGER PRIMARY KEY, value TEXT NOT NULL);

-- Host ranges (NVTX, record_function), whole ones only.
CREATE TEMP TABLE rng(name TEXT NOT NULL, t0 INTEGER NOT NULL, t1 INTEGER NOT NULL, tid INTEGER NOT NULL, pid INTEGER NOT NULL);

-- Calls of the CUDA runtime and driver.
CREATE TEMP TABLE api(name TEXT NOT NULL, t0 INTEGER NOT NULL, t1 INTEGER NOT NULL, tid INTEGER NOT NULL, pid INTEGER NOT NULL,
                      cid INTEGER);

-- Of calls that may wait, the Python line that makes them, where the trace has stacks. id: rowid in api.
CREATE TEMP TABLE call_site(id INTEGER PRIMARY KEY, site TEXT NOT NULL);

-- Work on a GPU. kind: kernel, memcpy, memset, graph (a replay that was not traced by node). node: NULL outside graphs.
CREATE TEMP TABLE op(kind TEXT NOT NULL, name_id INTEGER NOT NULL, t0 INTEGER NOT NULL, t1 INTEGER NOT NULL, dev INTEGER NOT NULL,
                     stream INTEGER NOT NULL, cid INTEGER, pid INTEGER NOT NULL, node INTEGER);

-- Graph nodes as they were made. orig: the node that this one was cloned from.
CREATE TEMP TABLE node(node INTEGER NOT NULL, orig INTEGER, t0 INTEGER NOT NULL, tid INTEGER NOT NULL, pid INTEGER NOT NULL);
