-- Who launched what: one call a correlation number, the outer one where a runtime call made a driver call of the same.

CREATE INDEX temp.op_cid ON op(pid, cid);
CREATE TEMP TABLE launch AS
SELECT a.rowid AS id, a.pid, a.cid, a.tid, a.name, MIN(a.t0) AS t0, a.t1
FROM api a WHERE a.cid > 0 AND EXISTS (SELECT 1 FROM op o WHERE o.pid = a.pid AND o.cid = a.cid)
GROUP BY a.pid, a.cid;
CREATE UNIQUE INDEX temp.launch_cid ON launch(pid, cid);
