-- Freshly initialised pages and the doublewrite buffer (MDEV-19738): load in one transaction, flush
-- the table to disk, drop it. Every column but the key is padding.
-- server: --innodb-page-size=4k --inkstone-page-size=4k
CREATE TABLE t1 (
  a BIGINT PRIMARY KEY,
  b CHAR(255) NOT NULL DEFAULT '',
  c CHAR(255) NOT NULL DEFAULT '',
  d CHAR(255) NOT NULL DEFAULT '',
  e CHAR(255) NOT NULL DEFAULT '',
  f CHAR(255) NOT NULL DEFAULT '',
  g CHAR(255) NOT NULL DEFAULT '',
  h CHAR(255) NOT NULL DEFAULT ''
) ENGINE=Inkstone CHARACTER SET latin1;
-- measure insert 1000000
BEGIN;
INSERT INTO t1 (a) SELECT seq FROM seq_1_to_1000000;
COMMIT;
-- measure flush
FLUSH TABLES t1 FOR EXPORT;
UNLOCK TABLES;
-- measure drop
DROP TABLE t1;
