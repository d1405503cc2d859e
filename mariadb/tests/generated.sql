# Generated columns, CHECK, defaults by expression, invisible columns, system versioning.
CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20),
  v INT AS (a * 2) VIRTUAL, s INT AS (a + 1) STORED, u VARCHAR(20) AS (UPPER(b)) VIRTUAL, j JSON,
  k INT AS (JSON_VALUE(j, '$.k')) VIRTUAL,
  d INT DEFAULT (a + 100), hidden INT INVISIBLE DEFAULT 5,
  CONSTRAINT positive CHECK (a >= 0), KEY (v), UNIQUE (u), KEY sv (s, v), KEY (k)) ENGINE=Inkstone;
INSERT INTO t (id, a, b, j) VALUES (1, 10, 'x', '{"k": 5}'), (2, 20, 'y', NULL), (3, NULL, NULL, '{}');
INSERT INTO t (id, a) VALUES (4, -1);
INSERT INTO t (id, a, b) VALUES (4, 1, 'X');
INSERT INTO t (id, a, v) VALUES (4, 1, 7);
SELECT * FROM t ORDER BY id;
SELECT id, hidden, k FROM t ORDER BY id;
SELECT id FROM t FORCE INDEX (v) WHERE v >= 20 ORDER BY v;
SELECT id, u FROM t FORCE INDEX (u) WHERE u = 'Y';
SELECT s, v FROM t FORCE INDEX (sv) WHERE s > 0 ORDER BY s;
SELECT id FROM t FORCE INDEX (k) WHERE k = 5;
UPDATE t SET a = a + 5, b = CONCAT(b, b), j = '{"k": 9}' WHERE id < 3;
SELECT id, v, s, u, k, d FROM t ORDER BY id;
SELECT id FROM t FORCE INDEX (v) WHERE v = 30;
SELECT id FROM t FORCE INDEX (k) WHERE k = 9 ORDER BY id;
DELETE FROM t WHERE v = 30;
ALTER TABLE t ADD COLUMN w INT AS (id + 1000) VIRTUAL, ADD INDEX (w);
SELECT id, w FROM t FORCE INDEX (w) WHERE w > 1000 ORDER BY w;
ALTER TABLE t DROP COLUMN v;
CHECK TABLE t EXTENDED;
CREATE TABLE versioned (id INT PRIMARY KEY, v INT) ENGINE=Inkstone WITH SYSTEM VERSIONING;
INSERT INTO versioned VALUES (1, 1), (2, 2);
UPDATE versioned SET v = 10 WHERE id = 1;
DELETE FROM versioned WHERE id = 2;
SELECT id, v FROM versioned;
SELECT id, v, row_end < NOW(6) AS old FROM versioned FOR SYSTEM_TIME ALL ORDER BY id, v;
CREATE SEQUENCE numbers_of ENGINE=Inkstone;
SELECT NEXTVAL(numbers_of), NEXTVAL(numbers_of), LASTVAL(numbers_of);
SELECT SETVAL(numbers_of, 100);
SELECT NEXTVAL(numbers_of);
