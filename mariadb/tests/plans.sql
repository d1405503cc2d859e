# The optimizer picks the plans that it picks for InnoDB.
SET SESSION optimizer_use_condition_selectivity = 1;
CREATE TABLE customer (c_id INT PRIMARY KEY, c_name VARCHAR(40), c_nation INT, c_balance DECIMAL(12,2), KEY (c_nation)) ENGINE=Inkstone;
CREATE TABLE orders (o_id INT PRIMARY KEY, o_customer INT, o_date DATE, o_total DECIMAL(12,2), KEY (o_customer), KEY (o_date)) ENGINE=Inkstone;
CREATE TABLE line (l_order INT, l_number INT, l_part INT, l_quantity INT, l_price DECIMAL(12,2), l_ship DATE, PRIMARY KEY (l_order, l_number), KEY (l_part), KEY (l_ship)) ENGINE=Inkstone;
CREATE TABLE nation (n_id INT PRIMARY KEY, n_name VARCHAR(20), UNIQUE (n_name)) ENGINE=Inkstone;
INSERT INTO nation SELECT seq, CONCAT('nation', seq) FROM seq_1_to_25;
INSERT INTO customer SELECT seq, CONCAT('customer', seq), 1 + seq MOD 25, (seq * 7919) MOD 10000 FROM seq_1_to_2000;
INSERT INTO orders SELECT seq, 1 + (seq * 31) MOD 2000, DATE('1992-01-01') + INTERVAL (seq * 17) MOD 2400 DAY, (seq * 104729) MOD 100000 FROM seq_1_to_10000;
INSERT INTO line SELECT 1 + seq DIV 4, seq MOD 4, 1 + (seq * 13) MOD 500, 1 + seq MOD 50, (seq * 7907) MOD 10000, DATE('1992-01-01') + INTERVAL (seq * 11) MOD 2500 DAY FROM seq_0_to_39999;
ANALYZE TABLE customer, orders, line, nation;
EXPLAIN SELECT * FROM orders WHERE o_id = 77;
EXPLAIN SELECT * FROM customer WHERE c_id = 5 AND c_nation = 3;
EXPLAIN SELECT n_name FROM nation WHERE n_name = 'nation7';
EXPLAIN SELECT COUNT(*) FROM nation;
# An index that has the order saves sorting, also without LIMIT.
CREATE TABLE ordered (a INT, b INT, c INT, d INT, PRIMARY KEY (a, b), KEY (c)) ENGINE=Inkstone;
INSERT INTO ordered SELECT seq DIV 3, seq MOD 3, seq MOD 7, seq FROM seq_1_to_40;
ANALYZE TABLE ordered;
EXPLAIN SELECT * FROM ordered ORDER BY a, b;
EXPLAIN SELECT * FROM ordered WHERE d > 10 ORDER BY a DESC, b DESC;
EXPLAIN SELECT MAX(d) FROM ordered GROUP BY a;
EXPLAIN SELECT MAX(d) FROM ordered GROUP BY c;
EXPLAIN SELECT * FROM ordered ORDER BY c;
EXPLAIN SELECT MAX(n_id) FROM nation GROUP BY n_name;
SELECT c_name, SUM(o_total) FROM customer JOIN orders ON o_customer = c_id WHERE c_nation = 3 GROUP BY c_name ORDER BY 2 DESC, 1 LIMIT 5;
SELECT n_name, COUNT(*), SUM(l_price * l_quantity) AS revenue FROM nation JOIN customer ON c_nation = n_id JOIN orders ON o_customer = c_id JOIN line ON l_order = o_id
  WHERE o_date BETWEEN '1994-01-01' AND '1994-12-31' GROUP BY n_name ORDER BY revenue DESC, n_name LIMIT 5;
SELECT o_id, o_total FROM orders WHERE o_date = '1993-05-05' AND o_total > 50000 ORDER BY o_id;
SELECT l_part, COUNT(*) FROM line WHERE l_ship BETWEEN '1995-03-01' AND '1995-03-03' GROUP BY l_part ORDER BY l_part LIMIT 10;
SELECT COUNT(*) FROM orders WHERE o_customer IN (SELECT c_id FROM customer WHERE c_balance < 100);
SELECT COUNT(*) FROM customer WHERE NOT EXISTS (SELECT * FROM orders WHERE o_customer = c_id);
SELECT c_id, (SELECT MAX(o_date) FROM orders WHERE o_customer = c_id) AS latest FROM customer WHERE c_id < 6;
SELECT l_order, l_number FROM line WHERE l_order IN (1, 50, 9999) ORDER BY l_order DESC, l_number DESC;
SELECT MIN(o_date), MAX(o_date), MIN(o_id), MAX(o_id) FROM orders;
SELECT DISTINCT o_customer FROM orders WHERE o_customer < 5 ORDER BY 1;
SELECT COUNT(*) FROM line FORCE INDEX (l_part) WHERE l_part BETWEEN 10 AND 20;
SELECT o_id FROM orders ORDER BY o_date, o_id LIMIT 5;
SELECT o_id FROM orders ORDER BY o_date DESC, o_id DESC LIMIT 5;
SELECT COUNT(*) FROM orders WHERE o_customer = 7 OR o_date = '1993-05-05';
WITH RECURSIVE chain AS (SELECT o_id, o_customer, 1 AS depth FROM orders WHERE o_id = 1 UNION ALL SELECT o.o_id, o.o_customer, depth + 1 FROM orders o JOIN chain c ON o.o_id = c.o_customer WHERE depth < 5)
  SELECT * FROM chain;
SELECT o_customer, o_id, ROW_NUMBER() OVER (PARTITION BY o_customer ORDER BY o_date, o_id) AS n FROM orders WHERE o_customer < 3 ORDER BY 1, 3;
HANDLER orders OPEN;
HANDLER orders READ `PRIMARY` >= (9998);
HANDLER orders READ `PRIMARY` NEXT LIMIT 5;
HANDLER orders READ o_date FIRST LIMIT 2;
HANDLER orders READ o_customer = (7) LIMIT 2;
HANDLER orders CLOSE;
UPDATE orders JOIN customer ON o_customer = c_id SET o_total = o_total + 1, c_balance = c_balance - 1 WHERE c_nation = 5;
DELETE line FROM line JOIN orders ON l_order = o_id WHERE o_customer = 10;
SELECT SUM(o_total) FROM orders;
SELECT SUM(c_balance) FROM customer;
SELECT COUNT(*) FROM line;
CHECK TABLE customer, orders, line EXTENDED;

# A filter of row ids, where the primary key is the beginning of a text.
CREATE TABLE filtered (p TEXT NOT NULL, a VARCHAR(60), b VARCHAR(60), PRIMARY KEY (p(30)), UNIQUE KEY ka (a), KEY kb (b)) ENGINE=Inkstone;
INSERT INTO filtered VALUES ('', '', ''), ('a', 'a', 'A');
SELECT * FROM filtered WHERE b >= 'a' AND a > '';
SELECT b FROM filtered WHERE b >= 'a' AND a > '';
DROP TABLE filtered;
# A range of the clustered key costs what it costs with InnoDB, in a table of one row and in a large one.
CREATE TABLE one (id INT PRIMARY KEY, u INT, k INT, v INT, c CHAR(5) CHARSET utf8mb4, w VARCHAR(200), UNIQUE KEY u (u), KEY k (k)) ENGINE=Inkstone;
INSERT INTO one VALUES (20, 20, 1, 2, 'c', 'w');
EXPLAIN DELETE one FROM one FORCE INDEX (PRIMARY) WHERE id BETWEEN 20 AND 30;
EXPLAIN DELETE one FROM one FORCE INDEX (PRIMARY) WHERE id BETWEEN 20 AND 30 OR id BETWEEN 1 AND 5;
SET optimizer_trace = 'enabled=on';
SELECT * FROM one WHERE id BETWEEN 20 AND 30 OR id BETWEEN 1 AND 5;
SELECT JSON_EXTRACT(trace, '$**.cost'), JSON_EXTRACT(trace, '$**.cost_for_plan') FROM information_schema.optimizer_trace;
SET optimizer_trace = 'enabled=off';
DROP TABLE one;
