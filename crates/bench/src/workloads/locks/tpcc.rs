//! A mix of five transactions like that of TPC-C: the same rows are locked in the same order,
//! columns that decide nothing are left out.

use super::{Fields, Locks, clients, describe, open};
use crate::counts::Counts;
use crate::failure::{Failure, Result};
use crate::random::Random;
use inkstone::{Database, Error, Isolation, LockMode, Table, Transaction, Wait};
use std::path::Path;

const DISTRICTS: u64 = 10;
/// Of each district.
const CUSTOMERS: u64 = 300;
/// Of each warehouse.
const ITEMS: u64 = 2000;
/// What a row has besides its number.
const PADDING: usize = 72;

struct Tables {
    warehouse: Table,
    district: Table,
    customer: Table,
    stock: Table,
    orders: Table,
    new_orders: Table,
    lines: Table,
}

/// A key of up to four numbers.
fn key(parts: &[u64]) -> Vec<u8> {
    parts
        .iter()
        .flat_map(|part| (*part as u32).to_be_bytes())
        .collect()
}

fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.resize(8 + PADDING, b'x');
    value
}

fn number(value: &[u8]) -> u64 {
    let bytes = value.first_chunk().copied();
    bytes.map_or(0, u64::from_be_bytes)
}

impl Tables {
    fn create(db: &Database, warehouses: u64) -> Result<Self> {
        let table = |name| db.create_table(name, &[]);
        let tables = Self {
            warehouse: table("warehouse")?,
            district: table("district")?,
            customer: table("customer")?,
            stock: table("stock")?,
            orders: table("orders")?,
            new_orders: table("new_orders")?,
            lines: table("order_lines")?,
        };
        for w in 0..warehouses {
            let setup = db.begin(Isolation::ReadCommitted)?;
            setup.insert(&tables.warehouse, &key(&[w]), &value(0))?;
            let items = (0..ITEMS).map(|i| (key(&[w, i]), value(1 << 32)));
            setup.insert_many(&tables.stock, items)?;
            for d in 0..DISTRICTS {
                setup.insert(&tables.district, &key(&[w, d, 0]), &value(0))?;
                // The next order's number.
                setup.insert(&tables.district, &key(&[w, d, 1]), &value(0))?;
                let customers = (0..CUSTOMERS).map(|c| (key(&[w, d, c]), value(1 << 32)));
                setup.insert_many(&tables.customer, customers)?;
            }
            setup.commit()?;
        }
        Ok(tables)
    }

    /// Locks a row and adds to its number; what it was.
    fn add(txn: &Transaction, table: &Table, key: &[u8], more: i64) -> Result<u64, Error> {
        let row = txn.get_locking(table, key, LockMode::Exclusive, Wait::Timeout)?;
        let before = number(&row.unwrap_or_default());
        txn.update(table, key, &value(before.wrapping_add_signed(more)))?;
        Ok(before)
    }

    fn new_order(&self, txn: &Transaction, random: &mut Random, w: u64) -> Result<(), Error> {
        let (d, c) = (random.below(DISTRICTS), random.below(CUSTOMERS));
        txn.get(&self.warehouse, &key(&[w]))?;
        txn.get(&self.customer, &key(&[w, d, c]))?;
        let order = Self::add(txn, &self.district, &key(&[w, d, 1]), 1)?;
        txn.insert(&self.orders, &key(&[w, d, order]), &value(c))?;
        txn.insert(&self.new_orders, &key(&[w, d, order]), &value(c))?;
        // In the order of their numbers, or two orders of the same items would be a deadlock.
        let mut items: Vec<u64> = (0..5 + random.below(11))
            .map(|_| random.below(ITEMS))
            .collect();
        items.sort_unstable();
        for (line, item) in items.into_iter().enumerate() {
            Self::add(txn, &self.stock, &key(&[w, item]), -1)?;
            txn.insert(&self.lines, &key(&[w, d, order, line as u64]), &value(item))?;
        }
        Ok(())
    }

    fn payment(&self, txn: &Transaction, random: &mut Random, w: u64) -> Result<(), Error> {
        let (d, c) = (random.below(DISTRICTS), random.below(CUSTOMERS));
        let amount = 1 + random.below(5000) as i64;
        Self::add(txn, &self.warehouse, &key(&[w]), amount)?;
        Self::add(txn, &self.district, &key(&[w, d, 0]), amount)?;
        Self::add(txn, &self.customer, &key(&[w, d, c]), -amount).map(drop)
    }

    fn order_status(&self, txn: &Transaction, random: &mut Random, w: u64) -> Result<(), Error> {
        let (d, c) = (random.below(DISTRICTS), random.below(CUSTOMERS));
        txn.get(&self.customer, &key(&[w, d, c]))?;
        let (low, high) = (key(&[w, d]), key(&[w, d + 1]));
        let mut latest = txn.range_backward(&self.orders, &low[..]..&high[..])?;
        if let Some((order, _)) = latest.next_row()? {
            let low = order.to_vec();
            let high = [&low[..], &[0xff]].concat();
            let mut lines = txn.range(&self.lines, &low[..]..&high[..])?;
            while lines.next_row()?.is_some() {}
        }
        Ok(())
    }

    /// Delivers the oldest order of each district.
    fn delivery(&self, txn: &Transaction, w: u64) -> Result<(), Error> {
        for d in 0..DISTRICTS {
            let (low, high) = (key(&[w, d]), key(&[w, d + 1]));
            let range = &low[..]..&high[..];
            let mode = LockMode::Exclusive;
            let mut oldest = txn.range_locking(&self.new_orders, range, mode, Wait::Timeout)?;
            let Some((order, row)) = oldest.next_row()? else {
                continue;
            };
            txn.delete(&self.new_orders, &order)?;
            Self::add(txn, &self.orders, &order, 1 << 40)?;
            Self::add(txn, &self.customer, &key(&[w, d, number(&row)]), 100)?;
        }
        Ok(())
    }

    fn stock_level(&self, txn: &Transaction, random: &mut Random, w: u64) -> Result<(), Error> {
        let d = random.below(DISTRICTS);
        let next = txn.get(&self.district, &key(&[w, d, 1]))?;
        let next = number(&next.unwrap_or_default());
        let (low, high) = (key(&[w, d, next.saturating_sub(20)]), key(&[w, d, next]));
        let mut lines = txn.range(&self.lines, &low[..]..&high[..])?;
        let mut items = Vec::new();
        while let Some((_, line)) = lines.next_row()? {
            items.push(number(line));
        }
        for item in items {
            txn.get(&self.stock, &key(&[w, item]))?;
        }
        Ok(())
    }

    /// One transaction of the mix.
    fn one(&self, txn: &Transaction, random: &mut Random, warehouses: u64) -> Result<(), Error> {
        let w = random.below(warehouses);
        match random.below(100) {
            0..45 => self.new_order(txn, random, w),
            45..88 => self.payment(txn, random, w),
            88..92 => self.order_status(txn, random, w),
            92..96 => self.delivery(txn, w),
            _ => self.stock_level(txn, random, w),
        }
    }

    /// Each warehouse's payments are those of its districts, and each order has a number of its
    /// own.
    fn check(&self, db: &Database, warehouses: u64) -> Result<()> {
        let txn = db.begin(Isolation::RepeatableRead)?;
        let count = |table: &Table, low: &[u8], high: &[u8]| -> Result<u64, Error> {
            Ok(txn.range(table, low..high)?.count() as u64)
        };
        for w in 0..warehouses {
            let paid = number(&txn.get(&self.warehouse, &key(&[w]))?.unwrap_or_default());
            let mut of_districts = 0;
            for d in 0..DISTRICTS {
                let row = txn.get(&self.district, &key(&[w, d, 0]))?;
                of_districts += number(&row.unwrap_or_default());
                let next = txn.get(&self.district, &key(&[w, d, 1]))?;
                let orders = count(&self.orders, &key(&[w, d]), &key(&[w, d + 1]))?;
                if number(&next.unwrap_or_default()) != orders {
                    return Err(Failure::Check(format!(
                        "district {w}.{d} has {orders} orders"
                    )));
                }
            }
            if paid != of_districts {
                return Err(Failure::Check(format!(
                    "warehouse {w} was paid {paid}, its districts {of_districts}"
                )));
            }
        }
        Ok(())
    }
}

pub fn run(
    arguments: &Locks,
    directory: &Path,
    warehouses: u64,
    client_count: u64,
) -> Result<Fields> {
    let db = open(directory, arguments.options()?)?;
    let tables = Tables::create(&db, warehouses)?;
    let before = Counts::of(&db);
    let run = clients::run(
        client_count,
        arguments.seconds,
        format!("locks: {warehouses} warehouses, {client_count} clients"),
        Ok,
        |random| {
            loop {
                let txn = db.begin(Isolation::LockingRepeatableRead)?;
                let done = tables.one(&txn, random, warehouses);
                match done.and_then(|()| txn.commit()) {
                    Ok(()) => return Ok(1),
                    Err(Error::Deadlock) => {}
                    Err(error) => return Err(error),
                }
            }
        },
    )?;
    let counts = Counts::of(&db).since(&before);
    tables.check(&db, warehouses)?;
    drop(tables);
    db.close()?;
    Ok(describe("tpcc", warehouses, client_count, &run, &counts))
}
