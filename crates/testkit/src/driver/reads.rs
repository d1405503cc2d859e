//! Reading: by key, by range, with locks. Each read is compared with the model.

use super::client::Client;
use super::generate::Shape;
use super::{Outcome, Run, bug};
use crate::model::{RowName, TableId, show};
use inkstone::{Cursor, Error, Isolation, LockMode, Table, Wait};

impl Run {
    pub(super) fn get(&mut self, n: usize, client: &mut Client) -> Outcome {
        let (table, shape, row) = self.any_row(client);
        client.pin(&self.model.now, self.model.clock);
        if self.rng.chance(20) {
            self.prefetch(client, &table, shape)?;
        }
        self.get_row(n, client, &table, row)
    }

    pub(super) fn get_row(
        &mut self,
        n: usize,
        client: &mut Client,
        table: &Table,
        row: RowName,
    ) -> Outcome {
        client.pin(&self.model.now, self.model.clock);
        self.trace(|| format!("{n}: get {} {}", row.0, show(&row.2)));
        let serializable = client.isolation == Isolation::Serializable;
        let may_wait = serializable && self.expect(n, client, &row).timeout;
        client.locks |= serializable;
        match client.txn.get(table, &row.2) {
            Err(Error::TableChanged { .. }) if client.is_older_than(row.0) => Ok(()),
            Ok(_) if client.is_older_than(row.0) => too_old(row.0),
            Ok(found) => {
                let wanted = client.read(&self.model.now, &row);
                let newest = client.current(&self.model.now, &row);
                self.marks
                    .add("old snapshots read", u64::from(wanted != newest));
                same_value(&row, found.as_deref(), wanted.as_deref())?;
                self.get_slice(client, table, &row, wanted.as_deref())?;
                self.get_outline(client, table, &row, wanted.as_deref())
            }
            Err(Error::LockTimeout { .. }) if may_wait => Ok(()),
            Err(error) => self.judge("get", &error),
        }
    }

    /// Some bytes of a row that has just been read: of a value with parts they are of several.
    fn get_slice(
        &self,
        client: &Client,
        table: &Table,
        row: &RowName,
        wanted: Option<&[u8]>,
    ) -> Outcome {
        let length = wanted.map_or(0, <[u8]>::len);
        let (start, end) = (length / 4, (length / 2 + 3).min(length));
        match (client.txn).get_slice(table, &row.2, start as u64..end as u64) {
            Ok(found) => same_value(
                row,
                found.as_deref(),
                wanted.map(|value| &value[start..end]),
            ),
            Err(error) => self.judge("get_slice", &error),
        }
    }

    /// The same row without its parts, which are read behind it, from the last to the first.
    fn get_outline(
        &self,
        client: &Client,
        table: &Table,
        row: &RowName,
        wanted: Option<&[u8]>,
    ) -> Outcome {
        let read = || -> Result<Option<Vec<u8>>, Error> {
            let Some(mut outline) = client.txn.get_outline(table, &row.2)? else {
                return Ok(None);
            };
            let (parts, mut bytes) = (outline.left_out().to_vec(), Vec::new());
            for (n, part) in parts.iter().enumerate().rev() {
                let mut of_part = vec![0; part.length as usize];
                let (first, second) = of_part.split_at_mut(part.length as usize / 3);
                outline.read(n, 0, first)?;
                outline.read(n, first.len() as u64, second)?;
                bytes.push((part.at as usize, of_part));
            }
            let mut value = outline.inline().to_vec();
            for (at, of_part) in bytes.into_iter().rev() {
                value.splice(at..at, of_part);
            }
            Ok(Some(value))
        };
        match read() {
            Ok(found) => same_value(row, found.as_deref(), wanted),
            Err(error) => self.judge("get_outline", &error),
        }
    }

    /// Says some keys before they may be looked up.
    fn prefetch(&mut self, client: &Client, table: &Table, shape: Shape) -> Outcome {
        let mut key = || shape.random_key(&mut self.rng, self.options.page_size);
        let keys: Vec<_> = (0..8).map(|_| key()).collect();
        match client.txn.prefetch(table, &keys) {
            Ok(pages) => {
                self.marks.add("rows read ahead", u64::from(pages > 0));
                Ok(())
            }
            Err(error) => self.judge("prefetch", &error),
        }
    }

    pub(super) fn range(&mut self, n: usize, client: &mut Client) -> Outcome {
        let (id, table, shape) = self.any_table();
        client.pin(&self.model.now, self.model.clock);
        let tree = self.rng.below(table.trees().len() as u64) as usize;
        let mut keys = [(); 2].map(|()| shape.random_key(&mut self.rng, self.options.page_size));
        keys.sort();
        let [low, high] = if self.rng.chance(40) || tree > 0 {
            [vec![], vec![0xff; 20]]
        } else {
            keys
        };
        let backward = self.rng.chance(40);
        self.trace(|| {
            let (low, high) = (show(&low), show(&high));
            format!("{n}: range of {id}.{tree} {low} {high}, backward: {backward}")
        });
        let serializable = client.isolation == Isolation::Serializable;
        let may_wait = serializable && self.others_work_in(n, id);
        client.locks |= serializable;
        let bounds = &low[..]..&high[..];
        let cursor = if backward {
            client.txn.range_backward(&table.trees()[tree], bounds)
        } else {
            client.txn.range(&table.trees()[tree], bounds)
        };
        let outlines = n % 2 == 1;
        let found: Result<Vec<_>, _> = match cursor {
            Ok(cursor) if outlines => rows_by_outlines(cursor),
            Ok(cursor) => cursor.collect(),
            Err(error) => Err(error),
        };
        let mut found = match found {
            Err(Error::TableChanged { .. }) if client.is_older_than(id) => {
                self.marks.add("tables newer than a snapshot", 1);
                return Ok(());
            }
            Ok(_) if client.is_older_than(id) => return too_old(id),
            Ok(found) => found,
            Err(Error::LockTimeout { .. }) if may_wait => return Ok(()),
            Err(error) => return self.judge("range", &error),
        };
        if backward {
            found.reverse();
        }
        self.check_range((id, tree), (low, high), client, found)
    }

    /// Whether a range has what the client is to see.
    fn check_range(
        &mut self,
        (id, tree): (TableId, usize),
        (low, high): (Vec<u8>, Vec<u8>),
        client: &Client,
        found: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Outcome {
        let view = client.view(&self.model.now);
        let mut wanted = std::collections::BTreeMap::new();
        if let Some(table) = view.tables.get(&id) {
            let rows = table.trees[tree].range(low.clone()..high.clone());
            wanted.extend(rows.map(|(key, value)| (key.clone(), value.clone())));
        }
        for (row, value) in &client.overlay {
            if row.0 == id && row.1 == tree && row.2 >= low && row.2 < high {
                match value {
                    Some(value) => wanted.insert(row.2.clone(), value.clone()),
                    None => wanted.remove(&row.2),
                };
            }
        }
        let same = found.len() == wanted.len()
            && found
                .iter()
                .zip(&wanted)
                .all(|(a, b)| a.0 == *b.0 && a.1[..] == b.1[..]);
        if !same {
            let found: std::collections::BTreeMap<_, _> = found.into_iter().collect();
            let off = wanted
                .iter()
                .find(|(k, v)| found.get(*k).map(|f| &f[..]) != Some(&v[..]))
                .map(|(k, _)| k)
                .or_else(|| found.keys().find(|k| !wanted.contains_key(*k)));
            let off = off.map(|k| show(k)).unwrap_or_default();
            let (is, should) = (found.len(), wanted.len());
            let level = client.isolation;
            return bug(format!(
                "{level:?} range of {id}.{tree} has {is} rows, expected {should}; first off: {off}"
            ));
        }
        let newest = self
            .model
            .now
            .tables
            .get(&id)
            .map(|table| &table.trees[tree]);
        let old = view.tables.get(&id).map(|table| &table.trees[tree]);
        let is_old = matches!((old, newest), (Some(old), Some(newest)) if old != newest);
        self.marks.add("old snapshots read", u64::from(is_old));
        Ok(())
    }

    pub(super) fn get_locking(&mut self, n: usize, client: &mut Client) -> Outcome {
        let (table, row) = match self.locked_row(client) {
            Some(again) => again,
            None => {
                let (table, _, row) = self.any_row(client);
                (table, row)
            }
        };
        client.pin(&self.model.now, self.model.clock);
        let mode = self.rng.pick(&[LockMode::Shared, LockMode::Exclusive]);
        let wait = self
            .rng
            .pick(&[Wait::NoWait, Wait::SkipLocked, Wait::Timeout]);
        let expected = self.expect(n, client, &row);
        client.locks = true;
        client.touched.insert(row.clone());
        self.trace(|| format!("{n}: lock {} {} {mode:?} {wait:?}", row.0, show(&row.2)));
        match client.txn.get_locking(&table, &row.2, mode, wait) {
            Ok(None) if wait == Wait::SkipLocked && expected.timeout => Ok(()),
            // A transaction that could not be rolled back keeps its locks.
            Ok(None) if wait == Wait::SkipLocked && self.tolerant => Ok(()),
            Ok(_) if expected.blocked => bug(format!("locked a changed row {}", show(&row.2))),
            Ok(found) => {
                let wanted = client.current(&self.model.now, &row);
                same_value(&row, found.as_deref(), wanted.as_deref())?;
                match found {
                    Some(_) => self.unlock(client, &table, row, mode),
                    None => Ok(()),
                }
            }
            Err(Error::WriteConflict) if expected.conflict => Ok(()),
            Err(Error::LockNotAvailable) if expected.timeout && wait == Wait::NoWait => Ok(()),
            Err(Error::LockTimeout { .. }) if expected.timeout && wait == Wait::Timeout => Ok(()),
            Err(error) => self.judge("locking read", &error),
        }
    }
}

impl Run {
    /// Now and then, a row that the client has locked.
    fn locked_row(&mut self, client: &Client) -> Option<(Table, RowName)> {
        let count = client.locked.len() as u64;
        if count == 0 || self.rng.chance(30) {
            return None;
        }
        let nth = self.rng.below(count) as usize;
        let (row, _) = client.locked.iter().nth(nth)?;
        let table = self.tables.get(&row.0)?;
        Some((table.clone(), row.clone()))
    }

    /// Gives a row's lock back now and then, or what the last request for it has added to it.
    fn unlock(
        &mut self,
        client: &mut Client,
        table: &Table,
        row: RowName,
        mode: LockMode,
    ) -> Outcome {
        let mut had = client.locked.get(&row).copied();
        let mut has = had.max(Some(mode)).unwrap_or(mode);
        if self.rng.chance(50) {
            let again = self.rng.pick(&[LockMode::Shared, LockMode::Exclusive]);
            match (client.txn).get_locking(table, &row.2, again, Wait::NoWait) {
                Ok(_) => (had, has) = (Some(has), has.max(again)),
                // Another transaction has it shared, too.
                Err(Error::LockNotAvailable | Error::WriteConflict) if again > has => {}
                Err(error) => return self.judge("locking again", &error),
            }
        }
        client.locked.insert(row.clone(), has);
        let adds_nothing = had == Some(has);
        self.marks.add("rows locked twice", u64::from(adds_nothing));
        if had.is_none() && self.rng.chance(60) {
            return Ok(());
        }
        match client.txn.unlock_row(table, &row.2) {
            Ok(true) if adds_nothing => {
                bug(format!("{} was locked twice and is free", show(&row.2)))
            }
            Ok(true) => {
                let mark = match had {
                    Some(had) => {
                        client.locked.insert(row, had);
                        "locks made shared again"
                    }
                    None => {
                        client.locked.remove(&row);
                        "rows unlocked"
                    }
                };
                self.marks.add(mark, 1);
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(error) => self.judge("unlocking", &error),
        }
    }
}

fn too_old(table: TableId) -> Outcome {
    bug(format!("table {table} was read with an older snapshot"))
}

fn same_value(row: &RowName, found: Option<&[u8]>, wanted: Option<&[u8]>) -> Outcome {
    if found == wanted {
        return Ok(());
    }
    let text = |value: Option<&[u8]>| value.map_or("nothing".into(), show);
    let (found, wanted) = (text(found), text(wanted));
    let (table, tree, key) = (row.0, row.1, show(&row.2));
    bug(format!(
        "key {key} in {table}.{tree} is {found}, expected {wanted}"
    ))
}

/// Keys and values.
type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// The rows of a cursor, their parts read behind them.
fn rows_by_outlines(mut cursor: Cursor) -> Result<Rows, Error> {
    let mut all = Vec::new();
    cursor.set_outlines(true);
    loop {
        let rows = cursor.next_rows(5)?.into_iter();
        let rows: Vec<_> = rows
            .map(|(key, inline)| (key.to_vec(), inline.to_vec()))
            .collect();
        if rows.is_empty() {
            return Ok(all);
        }
        for (row, (key, mut value)) in rows.into_iter().enumerate() {
            for (n, part) in cursor.left_out(row).to_vec().into_iter().enumerate() {
                let (at, mut bytes) = (part.at as usize, vec![0; part.length as usize]);
                cursor.read_left_out(row, n, 0, &mut bytes)?;
                value.splice(at..at, bytes);
            }
            all.push((key, value));
        }
    }
}
