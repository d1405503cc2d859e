# Every column type, its limits, and NULL; in rows, in keys, in long values.
SET SESSION time_zone = '+00:00', timestamp = 1700000000;
CREATE TABLE numbers (
  id INT PRIMARY KEY, t TINYINT, tu TINYINT UNSIGNED, s SMALLINT, m MEDIUMINT, i INT UNSIGNED, b BIGINT,
  bu BIGINT UNSIGNED, f FLOAT, d DOUBLE, n DECIMAL(30,10), n0 DECIMAL(65), bits BIT(1), bits64 BIT(64), bl BOOL,
  KEY (t), KEY (tu), KEY (s), KEY (m), KEY (i), KEY (b), KEY (bu), KEY (f), KEY (d), KEY (n), KEY (n0), KEY (bits64)
) ENGINE=Inkstone;
INSERT INTO numbers VALUES
  (1, -128, 0, -32768, -8388608, 0, -9223372036854775808, 0, -3.4e38, -1.7e308, -99999999999999999999.9999999999, -1e64, b'0', b'0', FALSE),
  (2, 127, 255, 32767, 8388607, 4294967295, 9223372036854775807, 18446744073709551615, 3.4e38, 1.7e308, 99999999999999999999.9999999999, 1e64, b'1', ~0, TRUE),
  (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (4, 0, 1, 0, 0, 1, 0, 1, 0, -0.0, 0, 0, b'1', 1, 0),
  (5, -1, 128, -1, -1, 65536, -1, 9223372036854775808, 1e-38, 1e-300, 0.0000000001, -1, b'0', 1 << 63, 1);
SELECT id, t, tu, s, m, i, b, bu, f, d, n, n0, bits + 0, bits64 + 0, bl FROM numbers ORDER BY id;
SELECT id FROM numbers FORCE INDEX (t) WHERE t >= -128 ORDER BY t;
SELECT id FROM numbers FORCE INDEX (bu) WHERE bu > 0 ORDER BY bu DESC;
SELECT id FROM numbers FORCE INDEX (b) ORDER BY b;
SELECT id FROM numbers FORCE INDEX (f) WHERE f < 0 ORDER BY f;
SELECT id FROM numbers FORCE INDEX (d) WHERE d IS NULL OR d <= 0 ORDER BY d, id;
SELECT id FROM numbers FORCE INDEX (n) WHERE n BETWEEN -1e20 AND 0.0000000001 ORDER BY n;
SELECT id FROM numbers FORCE INDEX (n0) ORDER BY n0;
SELECT id FROM numbers FORCE INDEX (bits64) WHERE bits64 >= 1 ORDER BY bits64;
UPDATE numbers SET n = -n, d = -d, b = -1 - b WHERE id IN (1, 2, 5);
SELECT id, b, d, n FROM numbers FORCE INDEX (n) WHERE n < 0 ORDER BY n;
INSERT INTO numbers (id, t) VALUES (6, 300);
INSERT IGNORE INTO numbers (id, t, tu) VALUES (6, 300, -1);
CREATE TABLE times (
  id INT PRIMARY KEY, y YEAR, dt DATE, t TIME, t6 TIME(6), ts TIMESTAMP NULL, ts3 TIMESTAMP(3) NULL, d DATETIME, d6 DATETIME(6),
  changed TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  KEY (y), KEY (dt), KEY (t6), KEY (ts3), KEY (d6)
) ENGINE=Inkstone;
INSERT INTO times (id, y, dt, t, t6, ts, ts3, d, d6) VALUES
  (1, 1901, '1000-01-01', '-838:59:59', '-838:59:59.999999', '1970-01-01 00:00:01', '1970-01-01 00:00:01.001', '1000-01-01', '1000-01-01 00:00:00.000001'),
  (2, 2155, '9999-12-31', '838:59:59', '838:59:59.999999', '2038-01-19 03:14:07', '2038-01-19 03:14:07.999', '9999-12-31 23:59:59', '9999-12-31 23:59:59.999999'),
  (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (4, 2000, '2000-02-29', '00:00:00', '-00:00:00.000001', '2000-02-29', '2000-02-29 12:00:00.5', '2000-02-29', '2000-02-29 12:00:00.5');
SELECT * FROM times ORDER BY id;
SELECT id, t6 FROM times FORCE INDEX (t6) WHERE t6 < 0 ORDER BY t6;
SELECT id, d6 FROM times FORCE INDEX (d6) WHERE d6 > '1999-01-01' ORDER BY d6 DESC;
SELECT id, ts3 FROM times FORCE INDEX (ts3) WHERE ts3 >= '2000-02-29' ORDER BY ts3;
SELECT id, y FROM times FORCE INDEX (y) WHERE y > 1950 ORDER BY y;
CREATE TABLE strings (
  id INT PRIMARY KEY, c CHAR(10), vc VARCHAR(300), b BINARY(5), vb VARBINARY(300), tt TINYTEXT, tx TEXT, mt MEDIUMTEXT, lb LONGBLOB,
  e ENUM('red','green','blue'), st SET('a','b','c','d'), j JSON, u UUID, ip INET6,
  KEY (c), KEY (vc), KEY (b), KEY (vb), KEY (tx(20)), KEY (lb(10), mt(10)), KEY (e), KEY (st), KEY (u), KEY (ip)
) ENGINE=Inkstone CHARACTER SET utf8mb4;
INSERT INTO strings VALUES
  (1, '', '', '', '', '', '', '', '', 'red', '', '{}', '00000000-0000-0000-0000-000000000000', '::'),
  (2, 'abc  ', 'abc  ', 'a\0b', 'a\0b\0', 'tiny', REPEAT('x', 3000), REPEAT('m', 70000), REPEAT('l', 200000), 'blue', 'a,d', '{"a": [1, 2, null]}', '123e4567-e89b-12d3-a456-426655440000', '2001:db8::ff00:42:8329'),
  (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (4, 'ABC', 'ABC', 'zzzzz', 0xff, 'Ä', 'größe', '日本語', 0x00ff00, 'green', 'b,c', '[]', 'ffffffff-ffff-ffff-ffff-ffffffffffff', '::ffff:192.0.2.1');
SELECT id, c, vc, HEX(b), HEX(vb), tt, LENGTH(tx), MD5(tx), LENGTH(mt), MD5(mt), LENGTH(lb), MD5(lb), e, e + 0, st, st + 0, j, u, ip FROM strings ORDER BY id;
SELECT id FROM strings FORCE INDEX (c) WHERE c = 'abc' ORDER BY id;
SELECT id FROM strings FORCE INDEX (vc) WHERE vc = 'abc' ORDER BY id;
SELECT id FROM strings FORCE INDEX (vb) WHERE vb >= 'a' ORDER BY vb;
SELECT id FROM strings FORCE INDEX (tx) WHERE tx LIKE 'xxxx%';
SELECT id FROM strings FORCE INDEX (e) WHERE e IN ('blue', 'red') ORDER BY e;
SELECT id FROM strings FORCE INDEX (st) ORDER BY st, id;
SELECT id FROM strings FORCE INDEX (u) WHERE u > '00000000-0000-0000-0000-000000000000' ORDER BY u;
SELECT id FROM strings FORCE INDEX (ip) ORDER BY ip, id;
UPDATE strings SET lb = CONCAT(lb, 'more'), mt = NULL WHERE id = 2;
SELECT id, LENGTH(lb), RIGHT(lb, 6), mt FROM strings WHERE id = 2;
INSERT INTO strings (id, j) VALUES (5, '{broken');
DELETE FROM strings WHERE id = 2;
CHECK TABLE numbers, times, strings EXTENDED;
CHECKSUM TABLE numbers, strings EXTENDED;
SHOW CREATE TABLE strings;
SHOW INDEX FROM times;
SELECT GROUP_CONCAT(id ORDER BY id) FROM (SELECT id FROM numbers UNION ALL SELECT id FROM times UNION ALL SELECT id FROM strings) x;
