-- Correlation numbers are a process's own: without `pid` the ranks of one file would mix.

CREATE INDEX temp.api_cid ON api(pid, cid);
CREATE INDEX temp.api_time ON api(pid, tid, t0);
CREATE TEMP TABLE graph_call AS SELECT pid, t0, cid FROM api WHERE name GLOB 'cu*GraphLaunch*' AND cid > 0;
CREATE INDEX temp.graph_call_time ON graph_call(pid, t0);
