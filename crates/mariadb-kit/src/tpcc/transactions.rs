//! The schema, and the five transactions.
//!
//! Like TPC-C's, not its: the same tables, the same rows in the same order, columns that decide
//! nothing left out, and no think time between two transactions. So its numbers are not to be
//! compared with published ones.

use crate::client::{Cell, Client, Reply};
use crate::random::Random;
use crate::server::Server;
use inkstone_testkit::build::Result;

const DISTRICTS: u64 = 10;
/// Of each district.
const CUSTOMERS: u64 = 600;
/// That there are, and that each warehouse has in stock.
const ITEMS: u64 = 10_000;
/// Names of customers.
const NAMES: u64 = 100;

/// Makes and fills the tables of so many warehouses.
pub fn load(server: &Server, database: &str, engine: &str, warehouses: u64) -> Result<()> {
    server
        .sql(&format!(
            "CREATE OR REPLACE DATABASE {database}; USE {database}; SET default_storage_engine = {engine}; \
             CREATE TABLE warehouse (w INT PRIMARY KEY, ytd BIGINT NOT NULL, tax INT NOT NULL); \
             CREATE TABLE district (w INT, d INT, ytd BIGINT NOT NULL, tax INT NOT NULL, next_order INT NOT NULL, \
               PRIMARY KEY (w, d)); \
             CREATE TABLE customer (w INT, d INT, c INT, name VARCHAR(16) NOT NULL, balance BIGINT NOT NULL, \
               payments INT NOT NULL, deliveries INT NOT NULL, data VARCHAR(250) NOT NULL, \
               PRIMARY KEY (w, d, c), KEY (w, d, name)); \
             CREATE TABLE item (i INT PRIMARY KEY, price INT NOT NULL, name VARCHAR(24) NOT NULL); \
             CREATE TABLE stock (w INT, i INT, quantity INT NOT NULL, ytd INT NOT NULL, orders INT NOT NULL, \
               data VARCHAR(50) NOT NULL, PRIMARY KEY (w, i)); \
             CREATE TABLE orders (w INT, d INT, o INT, c INT NOT NULL, carrier INT, line_count INT NOT NULL, \
               PRIMARY KEY (w, d, o), KEY (w, d, c, o)); \
             CREATE TABLE new_orders (w INT, d INT, o INT, PRIMARY KEY (w, d, o)); \
             CREATE TABLE order_lines (w INT, d INT, o INT, n INT, i INT NOT NULL, quantity INT NOT NULL, \
               amount INT NOT NULL, delivered DATETIME, PRIMARY KEY (w, d, o, n)); \
             CREATE TABLE history (id BIGINT AUTO_INCREMENT PRIMARY KEY, w INT NOT NULL, d INT NOT NULL, \
               c INT NOT NULL, amount INT NOT NULL); \
             INSERT INTO item SELECT seq, 100 + seq * 7919 % 9900, CONCAT('item ', seq) FROM seq_1_to_{ITEMS}; \
             INSERT INTO warehouse SELECT seq, 0, seq % 20 FROM seq_1_to_{warehouses}; \
             INSERT INTO district SELECT w, seq, 0, seq % 20, 1 FROM warehouse, seq_1_to_{DISTRICTS}"
        ))
        .map(drop)?;
    for w in 1..=warehouses {
        server.sql(&format!(
            "USE {database}; \
             INSERT INTO stock SELECT {w}, seq, 50 + seq % 50, 0, 0, REPEAT('s', 26 + seq % 24) FROM seq_1_to_{ITEMS}; \
             INSERT INTO customer SELECT {w}, d.seq, c.seq, CONCAT('name ', c.seq * 31 % {NAMES}), -1000, 1, 0, \
               REPEAT('c', 150 + c.seq % 100) FROM seq_1_to_{DISTRICTS} d, seq_1_to_{CUSTOMERS} c"
        ))?;
    }
    Ok(())
}

/// Checks what every mix of these transactions keeps true.
pub fn check(server: &Server, database: &str) -> Result<()> {
    let found = server.sql(&format!(
        "USE {database}; \
         SELECT COUNT(*) FROM warehouse w WHERE ytd <> (SELECT SUM(ytd) FROM district d WHERE d.w = w.w); \
         SELECT COUNT(*) FROM district d WHERE next_order <> \
           (SELECT COALESCE(MAX(o), 0) + 1 FROM orders o WHERE o.w = d.w AND o.d = d.d); \
         SELECT (SELECT SUM(line_count) FROM orders) <> (SELECT COUNT(*) FROM order_lines); \
         SELECT (SELECT COUNT(*) FROM orders WHERE carrier IS NULL) <> (SELECT COUNT(*) FROM new_orders); \
         SELECT (SELECT SUM(ytd) FROM warehouse) <> (SELECT SUM(amount) FROM history)"
    ))?;
    if found.split_whitespace().all(|wrong| wrong == "0") {
        Ok(())
    } else {
        Err(format!("{database}: sums do not add up: {found:?}"))
    }
}

/// What a transaction came to.
pub enum Outcome {
    Committed,
    /// Rolled back by a deadlock, or a lock wait that took too long: to be repeated.
    Again,
}

/// Numbers of errors after which a transaction is repeated: deadlock, lock wait timeout.
const REPEATED: [u16; 2] = [1213, 1205];

enum Stop {
    Again,
    Broken(String),
}

/// A session in the midst of a transaction.
struct Session<'c>(&'c mut Client);

type Step<T> = std::result::Result<T, Stop>;

fn number(cell: Option<&Cell>) -> u64 {
    let text = cell.and_then(Option::as_deref).unwrap_or_default();
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

impl Session<'_> {
    fn run(&mut self, statement: &str) -> Step<Vec<Vec<Cell>>> {
        match self.0.run(statement) {
            Ok(Reply::Done(_)) => Ok(Vec::new()),
            Ok(Reply::Rows(rows)) => Ok(rows.rows),
            Ok(Reply::Refused(refusal)) if REPEATED.contains(&refusal.code) => Err(Stop::Again),
            Ok(Reply::Refused(refusal)) => Err(Stop::Broken(format!(
                "{statement}: {} {}",
                refusal.code, refusal.message
            ))),
            Err(error) => Err(Stop::Broken(format!("{statement}: {error}"))),
        }
    }

    /// The first column of the first row, if there is a row.
    fn find(&mut self, statement: &str) -> Step<Option<u64>> {
        let rows = self.run(statement)?;
        Ok(rows.first().map(|row| number(row.first())))
    }
}

/// One transaction, as chance decides. Numbers come from `random`: given the same it is the same
/// one.
pub fn transaction(client: &mut Client, random: &mut Random, w: u64) -> Result<Outcome> {
    let mut session = Session(client);
    let kind = random.below(100);
    let done = session.run("BEGIN").and_then(|_| {
        match kind {
            0..45 => session.new_order(random, w),
            45..88 => session.payment(random, w),
            88..92 => session.order_status(random, w),
            92..96 => session.delivery(random, w),
            _ => session.stock_level(random, w),
        }?;
        session.run("COMMIT")
    });
    match done {
        Ok(_) => Ok(Outcome::Committed),
        Err(Stop::Again) => match session.run("ROLLBACK") {
            Err(Stop::Broken(error)) => Err(error),
            _ => Ok(Outcome::Again),
        },
        Err(Stop::Broken(error)) => Err(error),
    }
}

impl Session<'_> {
    fn new_order(&mut self, random: &mut Random, w: u64) -> Step<()> {
        let (d, c) = (random.between(1, DISTRICTS), random.between(1, CUSTOMERS));
        // In the order of their numbers, or two orders of the same items would be a deadlock.
        let mut items: Vec<u64> = (0..random.between(5, 15))
            .map(|_| random.between(1, ITEMS))
            .collect();
        items.sort_unstable();
        self.run(&format!("SELECT tax FROM warehouse WHERE w = {w}"))?;
        self.run(&format!(
            "SELECT name, balance FROM customer WHERE w = {w} AND d = {d} AND c = {c}"
        ))?;
        let next = self.find(&format!(
            "SELECT next_order FROM district WHERE w = {w} AND d = {d} FOR UPDATE"
        ))?;
        let o = next.unwrap_or_default();
        self.run(&format!(
            "UPDATE district SET next_order = next_order + 1 WHERE w = {w} AND d = {d}"
        ))?;
        self.run(&format!(
            "INSERT INTO orders VALUES ({w}, {d}, {o}, {c}, NULL, {})",
            items.len()
        ))?;
        self.run(&format!("INSERT INTO new_orders VALUES ({w}, {d}, {o})"))?;
        for (n, i) in items.into_iter().enumerate() {
            let quantity = random.between(1, 10);
            let price = self
                .find(&format!("SELECT price FROM item WHERE i = {i}"))?
                .unwrap_or_default();
            self.run(&format!(
                "SELECT quantity, data FROM stock WHERE w = {w} AND i = {i} FOR UPDATE"
            ))?;
            self.run(&format!(
                "UPDATE stock SET quantity = IF(quantity >= {quantity} + 10, quantity, quantity + 91) - {quantity}, \
                 ytd = ytd + {quantity}, orders = orders + 1 WHERE w = {w} AND i = {i}"
            ))?;
            let amount = price * quantity;
            self.run(&format!(
                "INSERT INTO order_lines VALUES ({w}, {d}, {o}, {n}, {i}, {quantity}, {amount}, NULL)"
            ))?;
        }
        Ok(())
    }

    /// The customer by number, or by name: of those of one name the one in the middle.
    fn customer(&mut self, random: &mut Random, w: u64, d: u64) -> Step<u64> {
        let c = random.between(1, CUSTOMERS);
        if !random.chance(60) {
            return Ok(c);
        }
        let name = random.below(NAMES);
        let found = self.run(&format!(
            "SELECT c FROM customer WHERE w = {w} AND d = {d} AND name = 'name {name}' ORDER BY c"
        ))?;
        let middle = found.get(found.len() / 2);
        Ok(middle.map_or(c, |row| number(row.first())))
    }

    fn payment(&mut self, random: &mut Random, w: u64) -> Step<()> {
        let (d, amount) = (random.between(1, DISTRICTS), random.between(1, 5000));
        self.run(&format!(
            "UPDATE warehouse SET ytd = ytd + {amount} WHERE w = {w}"
        ))?;
        self.run(&format!(
            "UPDATE district SET ytd = ytd + {amount} WHERE w = {w} AND d = {d}"
        ))?;
        let c = self.customer(random, w, d)?;
        self.run(&format!(
            "SELECT name, data FROM customer WHERE w = {w} AND d = {d} AND c = {c} FOR UPDATE"
        ))?;
        self.run(&format!(
            "UPDATE customer SET balance = balance - {amount}, payments = payments + 1 \
             WHERE w = {w} AND d = {d} AND c = {c}"
        ))?;
        self.run(&format!(
            "INSERT INTO history (w, d, c, amount) VALUES ({w}, {d}, {c}, {amount})"
        ))?;
        Ok(())
    }

    fn order_status(&mut self, random: &mut Random, w: u64) -> Step<()> {
        let d = random.between(1, DISTRICTS);
        let c = self.customer(random, w, d)?;
        self.run(&format!(
            "SELECT name, balance FROM customer WHERE w = {w} AND d = {d} AND c = {c}"
        ))?;
        let order = self.find(&format!(
            "SELECT o, carrier FROM orders WHERE w = {w} AND d = {d} AND c = {c} ORDER BY o DESC LIMIT 1"
        ))?;
        if let Some(o) = order {
            self.run(&format!(
                "SELECT i, quantity, amount, delivered FROM order_lines WHERE w = {w} AND d = {d} AND o = {o}"
            ))?;
        }
        Ok(())
    }

    fn delivery(&mut self, random: &mut Random, w: u64) -> Step<()> {
        let carrier = random.between(1, 10);
        for d in 1..=DISTRICTS {
            let oldest = self.find(&format!(
                "SELECT o FROM new_orders WHERE w = {w} AND d = {d} ORDER BY o LIMIT 1 FOR UPDATE"
            ))?;
            let Some(o) = oldest else {
                continue;
            };
            self.run(&format!(
                "DELETE FROM new_orders WHERE w = {w} AND d = {d} AND o = {o}"
            ))?;
            let c = self.find(&format!(
                "SELECT c FROM orders WHERE w = {w} AND d = {d} AND o = {o} FOR UPDATE"
            ))?;
            self.run(&format!(
                "UPDATE orders SET carrier = {carrier} WHERE w = {w} AND d = {d} AND o = {o}"
            ))?;
            self.run(&format!(
                "UPDATE order_lines SET delivered = NOW() WHERE w = {w} AND d = {d} AND o = {o}"
            ))?;
            let sum = format!(
                "SELECT SUM(amount) FROM order_lines WHERE w = {w} AND d = {d} AND o = {o}"
            );
            let amount = self.find(&sum)?.unwrap_or_default();
            self.run(&format!(
                "UPDATE customer SET balance = balance + {amount}, deliveries = deliveries + 1 \
                 WHERE w = {w} AND d = {d} AND c = {}",
                c.unwrap_or_default()
            ))?;
        }
        Ok(())
    }

    fn stock_level(&mut self, random: &mut Random, w: u64) -> Step<()> {
        let (d, level) = (random.between(1, DISTRICTS), random.between(10, 20));
        let next = self.find(&format!(
            "SELECT next_order FROM district WHERE w = {w} AND d = {d}"
        ))?;
        let next = next.unwrap_or_default();
        self.run(&format!(
            "SELECT COUNT(DISTINCT s.i) FROM order_lines l JOIN stock s ON s.w = l.w AND s.i = l.i \
             WHERE l.w = {w} AND l.d = {d} AND l.o >= {} AND l.o < {next} AND s.quantity < {level}",
            next.saturating_sub(20)
        ))?;
        Ok(())
    }
}
