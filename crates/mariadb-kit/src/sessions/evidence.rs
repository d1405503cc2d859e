//! Which lock an InnoDB session waits for, as InnoDB itself says: on which record of which index,
//! whether the record is the mark of a deleted row, and whether only the gap before it is meant.

use super::schema::Schema;
use super::stage::{ASK_AGAIN, Stage};
use crate::client::Cell;
use inkstone_testkit::build::Result;

/// A lock that is waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub table: String,
    pub index: String,
    /// To insert into the gap before the record.
    pub is_intention: bool,
    /// The record behind all others: a lock of it is one of the gap before it.
    pub is_supremum: bool,
    /// The record's row, or entry, was deleted.
    pub is_marked: bool,
    /// Values of the record's key as SQL.
    pub key: Vec<String>,
    /// Connections that hold it, or stand before.
    pub blockers: Vec<u64>,
}

/// A lock of a record that a session has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub of: Wanted,
    pub exclusive: bool,
    /// Only the gap before the record is locked.
    pub is_gap: bool,
}

const WAITED_FOR: &str = "FOR THIS LOCK TO BE GRANTED:";
/// What InnoDB lists of all transactions as they are now begins here.
const LIST: &str = "LIST OF TRANSACTIONS FOR EACH SESSION:";

impl Stage {
    /// The lock that a session waits for; nothing if it is not a record's.
    pub fn wanted(&mut self, session: usize) -> Result<Option<Wanted>> {
        // Its tables tell for a while what they have told before.
        std::thread::sleep(ASK_AGAIN);
        let connection = self.sessions[session - 1].connection;
        let rows = self.ask(&format!(
            "SELECT l.lock_data, b.trx_mysql_thread_id FROM information_schema.innodb_trx r \
             JOIN information_schema.innodb_locks l ON l.lock_id = r.trx_requested_lock_id \
             JOIN information_schema.innodb_lock_waits w ON w.requested_lock_id = l.lock_id \
             JOIN information_schema.innodb_trx b \
             ON b.trx_id = w.blocking_trx_id AND b.trx_lock_structs > 0 \
             WHERE r.trx_mysql_thread_id = {connection}"
        ))?;
        let status = self.status()?;
        let Some(mut wanted) = of_connection(&status, connection) else {
            return Ok(None);
        };
        if let Some(row) = rows.rows.first() {
            let record = text(&row[0]);
            wanted.is_supremum |= record == "supremum pseudo-record";
            wanted.key = record.split(", ").map(str::to_owned).collect();
        }
        let blockers = rows
            .rows
            .iter()
            .filter_map(|row| text(&row[1]).parse().ok());
        wanted.blockers = blockers.collect();
        Ok(Some(wanted))
    }

    /// Locks of records that a session has in InnoDB, as far as InnoDB prints them.
    pub fn granted(&mut self, session: usize) -> Result<Vec<Granted>> {
        let connection = self.sessions[session - 1].connection;
        self.ask("SET GLOBAL innodb_status_output_locks = ON")?;
        let status = self.status();
        self.ask("SET GLOBAL innodb_status_output_locks = OFF")?;
        Ok(granted_to(&status?, connection))
    }

    /// What the engine tells of itself.
    fn status(&mut self) -> Result<String> {
        let rows = self.ask(&format!("SHOW ENGINE {} STATUS", self.engine.name()))?;
        Ok(rows.rows.first().map_or(String::new(), |row| text(&row[2])))
    }

    /// The latest deadlock that InnoDB has found, if one of the case's sessions was in it.
    pub fn latest_deadlock(&mut self) -> Result<Vec<Party>> {
        let status = self.status()?;
        let Some((_, rest)) = status.split_once("LATEST DETECTED DEADLOCK") else {
            return Ok(Vec::new());
        };
        let (deadlock, _) = rest.split_once("\nTRANSACTIONS\n").unwrap_or((rest, ""));
        let parties = deadlock.split(") TRANSACTION:").skip(1).filter_map(party);
        let connections: Vec<u64> = self.sessions.iter().map(|s| s.connection).collect();
        Ok(parties
            .filter(|party| connections.contains(&party.connection))
            .collect())
    }

    /// Of all deadlocks that InnoDB has found since the latest step began, those of the case's
    /// sessions that were in them: of one that was in several the first one's account.
    pub fn deadlocks_of_step(&mut self) -> Result<Vec<Party>> {
        let log = without_inkstone(&self.logged()?);
        let parties = log.split(") TRANSACTION:").skip(1).filter_map(party);
        let connections: Vec<u64> = self.sessions.iter().map(|s| s.connection).collect();
        Ok(parties
            .filter(|party| connections.contains(&party.connection))
            .collect())
    }

    /// The deadlocks that InnoDB has found since the latest step began, and that this session was
    /// in, in their order (the status has the last of all). None if a connection of none of the
    /// case's sessions was in one of them.
    pub fn deadlocks_with(&self, session: usize) -> Result<Vec<Vec<Party>>> {
        let connection = self.sessions[session - 1].connection;
        let deadlocks = deadlocks_with(&without_inkstone(&self.logged()?), connection);
        let known: Vec<u64> = self.sessions.iter().map(|s| s.connection).collect();
        let mut parties = deadlocks.iter().flatten();
        let all_are_known = parties.all(|party| known.contains(&party.connection));
        Ok(if all_are_known { deadlocks } else { Vec::new() })
    }

    /// All deadlocks that InnoDB has found since the latest step began, in their order. (Which one
    /// it rolls back its log does not say in a way that can be trusted.)
    pub fn all_deadlocks_of_step(&self) -> Result<Vec<Vec<Party>>> {
        Ok(deadlocks(&without_inkstone(&self.logged()?)))
    }

    /// The first deadlock that Inkstone has found since the latest step began: its connections, and
    /// the one that was rolled back.
    pub fn first_circle_of_step(&self) -> Result<Option<(Vec<u64>, u64)>> {
        Ok(first_circle(&self.logged()?))
    }

    /// Connections that Inkstone has rolled back for a deadlock since the latest step began.
    pub fn rolled_back_in_step(&self) -> Result<Vec<u64>> {
        Ok(rolled_back(&self.logged()?))
    }

    /// Connections of the latest deadlock that Inkstone has found.
    pub fn latest_circle(&mut self) -> Result<Vec<u64>> {
        Ok(circle(&self.status()?))
    }
}

/// A log without the lines of Inkstone, whose side of the case goes on at the same time. They may
/// stand in the middle of a line that InnoDB writes in pieces:
/// `RECORD LOCKS space id 5 pag2026-11-25  9:01:02 9 [Note] Inkstone: deadlock of ..`
fn without_inkstone(log: &str) -> String {
    let mut innodbs = String::new();
    for line in log.split_inclusive('\n') {
        let Some((before, _)) = line.split_once(" [Note] Inkstone: ") else {
            innodbs += line;
            continue;
        };
        // The number of a thread, the time, the date.
        let mut own = before;
        for _ in 0..2 {
            own = own.rsplit_once(' ').map_or("", |(own, _)| own.trim_end());
        }
        let end = own.len().saturating_sub("2026-11-25".len());
        innodbs += own.get(..end).unwrap_or_default();
    }
    innodbs
}

/// What ends the account of a deadlock of InnoDB's.
const END: &str = "WE ROLL BACK TRANSACTION (";

fn deadlocks_with(log: &str, connection: u64) -> Vec<Vec<Party>> {
    let deadlocks = log.split(END).map(|one| {
        let parties = one.split(") TRANSACTION:").skip(1).map(party);
        parties.collect::<Option<Vec<Party>>>().unwrap_or_default()
    });
    deadlocks
        .filter(|parties| parties.iter().any(|party| party.connection == connection))
        .collect()
}

/// Those that are told to their end.
fn deadlocks(log: &str) -> Vec<Vec<Party>> {
    let told = log.split_inclusive(END).filter(|one| one.ends_with(END));
    told.filter_map(|one| one.split(") TRANSACTION:").skip(1).map(party).collect())
        .collect()
}

fn first_circle(log: &str) -> Option<(Vec<u64>, u64)> {
    circles(log).into_iter().next()
}

fn rolled_back(log: &str) -> Vec<u64> {
    circles(log).into_iter().map(|(_, victim)| victim).collect()
}

/// The connections of each deadlock of Inkstone's, and the one that was rolled back. Each line of a
/// report stands behind a time and the engine's name.
fn circles(log: &str) -> Vec<(Vec<u64>, u64)> {
    let lines = log
        .lines()
        .filter_map(|line| Some(line.split_once(" Inkstone: ")?.1));
    let mut circles = Vec::new();
    let mut members: Vec<(u64, u64)> = Vec::new();
    for line in lines {
        if line.starts_with("deadlock of ") {
            members.clear();
        } else if line.starts_with("  transaction ") {
            let trx = number_behind(line, "  transaction ");
            members.extend(trx.zip(number_behind(line, "(connection ")));
        } else if line.contains(" was rolled back: ") {
            let trx = number_behind(line, "transaction ");
            let victim = members.iter().find(|(member, _)| Some(*member) == trx);
            let connections = members.iter().map(|(_, connection)| *connection).collect();
            circles.extend(victim.map(|(_, victim)| (connections, *victim)));
        }
    }
    circles
}

/// The members of the latest deadlock, each a line
/// `  transaction 7 (connection 10, 1 changes) waits for ..`
fn circle(status: &str) -> Vec<u64> {
    let Some((_, deadlock)) = status.split_once("\nLATEST DEADLOCK\n") else {
        return Vec::new();
    };
    let (members, _) = deadlock.split_once(" was rolled back").unwrap_or_default();
    let members = members
        .lines()
        .filter(|line| line.starts_with("  transaction "));
    members
        .filter_map(|line| number_behind(line, "(connection "))
        .collect()
}

/// One of the transactions that wait for each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Party {
    pub connection: u64,
    /// Rows that it has changed.
    pub changes: u64,
    /// Locks as InnoDB counts them: one for each kind and page.
    pub locks: u64,
    pub wanted: Option<Wanted>,
    /// It waited for the lock of a table's AUTO_INCREMENT.
    pub wanted_numbers: bool,
    trx: u64,
    /// Transactions that have locks of the wanted record; those that wait for it are not told.
    holders: Vec<u64>,
}

impl Party {
    /// Whether it has the record that it wants, no other of the circle has it, and the other one
    /// waits for it: so it waits behind that one's place in the queue only.
    pub fn is_upgrade(&self, parties: &[Self]) -> bool {
        let [one, other] = parties else {
            return false;
        };
        if self.trx == 0 {
            return false;
        }
        let other = if one.trx == self.trx { other } else { one };
        let same = match (&self.wanted, &other.wanted) {
            (Some(own), Some(others)) => {
                (&own.table, &own.index, &own.key) == (&others.table, &others.index, &others.key)
            }
            _ => false,
        };
        let has_it = |parties: &Self| {
            let holders = &parties.holders;
            !holders.is_empty() && holders.iter().all(|&trx| trx == self.trx)
        };
        same && has_it(self) && has_it(other)
    }
}

/// One of the transactions that the status prints of a deadlock.
fn party(text: &str) -> Option<Party> {
    let wanted = text.split_once("WAITING FOR THIS LOCK TO BE GRANTED:");
    let (_, holders) = text.split_once("CONFLICTING WITH:").unwrap_or_default();
    let wanted_lock = wanted.and_then(|(_, lock)| record_lock(lock));
    // Locks of gaps are in the way of inserts alone.
    let wants_gap = (wanted_lock.as_ref()).is_some_and(|wanted| wanted.is_intention);
    let holders = holders.lines().filter(|line| {
        let is_gap = line.contains(" locks gap before rec");
        line.starts_with("RECORD LOCKS ") && !line.ends_with(" waiting") && (wants_gap || !is_gap)
    });
    Some(Party {
        connection: number_behind(text, "MariaDB thread id ")?,
        changes: number_behind(text, "undo log entries ").unwrap_or(0),
        locks: number_before(text, " lock struct(s)").unwrap_or(0),
        wanted: wanted_lock,
        wanted_numbers: wanted.is_some_and(|(_, lock)| {
            let line = lock.trim_start().lines().next().unwrap_or_default();
            line.starts_with("TABLE LOCK ") && line.ends_with(" lock mode AUTO-INC waiting")
        }),
        // One that has changed nothing has no number, and its locks have 0.
        trx: number_behind(text, "TRANSACTION ").unwrap_or(0),
        holders: holders
            .filter_map(|line| number_behind(line, " trx id "))
            .collect(),
    })
}

fn of_connection(status: &str, connection: u64) -> Option<Wanted> {
    record_lock(transaction(status, connection)?.split_once(WAITED_FOR)?.1)
}

/// What is said of a connection's transaction as it is now.
fn transaction(status: &str, connection: u64) -> Option<&str> {
    // Before the list the account of the latest deadlock may name the connection, too.
    let (_, list) = status.split_once(LIST).unwrap_or(("", status));
    let (_, rest) = list.split_once(&format!("MariaDB thread id {connection},"))?;
    rest.split("---TRANSACTION").next()
}

/// Each record of each lock that is not waited for.
fn granted_to(status: &str, connection: u64) -> Vec<Granted> {
    let own = transaction(status, connection).unwrap_or_default();
    let mut granted = Vec::new();
    for lock in own.split("\nRECORD LOCKS ").skip(1) {
        let line = lock.lines().next().unwrap_or_default();
        if line.ends_with(" waiting") {
            continue;
        }
        for record in lock.split("\nRecord lock, ").skip(1) {
            let one = format!("RECORD LOCKS {line}\nRecord lock, {record}");
            granted.extend(record_lock(&one).map(|of| Granted {
                of,
                exclusive: line.contains("lock_mode X"),
                is_gap: line.contains("locks gap before rec"),
            }));
        }
    }
    granted
}

/// `RECORD LOCKS space id 5 page no 3 n bits 8 index PRIMARY of table `s_inno`.`t` trx id 9 lock_mode X ..`,
/// and behind it the record:
/// `Record lock, heap no 2 PHYSICAL RECORD: n_fields 4; compact format; info bits 32`, where 32 is
/// the mark of a deleted one; then its fields as hexadecimal digits.
fn record_lock(text: &str) -> Option<Wanted> {
    let text = text.trim_start();
    let line = text.lines().next()?;
    let index = line.strip_prefix("RECORD LOCKS ")?.split_once(" index ")?.1;
    let (index, rest) = index.split_once(" of table ")?;
    let table = rest.split('`').nth(3)?;
    let record = text.lines().nth(1).unwrap_or_default();
    let field = |line: &str| {
        let hex = line.trim().split_once("hex ")?.1.split(';').next()?;
        Some(field_text(hex))
    };
    let fields = text
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with(' '));
    let info_bits = number_behind(record, "info bits ").unwrap_or(0);
    Some(Wanted {
        table: table.to_owned(),
        index: index.trim_matches('`').to_owned(),
        is_intention: line.contains("insert intention"),
        is_supremum: text
            .lines()
            .nth(2)
            .is_some_and(|line| line.contains("asc supremum")),
        is_marked: info_bits & 32 != 0,
        key: fields.map_while(field).collect(),
        blockers: Vec::new(),
    })
}

/// A field of a record: an INT of four bytes whose sign is turned round, or letters.
fn field_text(hex: &str) -> String {
    match u32::from_str_radix(hex, 16) {
        Ok(number) if hex.len() == 8 && number >> 31 == 1 => (number & !(1 << 31)).to_string(),
        _ => format!("x'{hex}'"),
    }
}

/// The SQL condition that a row is the one of this record.
pub fn is_record(wanted: &Wanted, schema: &Schema) -> Option<String> {
    let columns = schema.table(&wanted.table)?.record(&wanted.index)?;
    let same = columns.iter().zip(&wanted.key);
    let same: Vec<String> = same
        .map(|(name, value)| format!("{name} <=> {value}"))
        .collect();
    (!same.is_empty()).then(|| same.join(" AND "))
}

fn number_behind(text: &str, words: &str) -> Option<u64> {
    let behind = text.split_once(words)?.1;
    behind
        .split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

fn number_before(text: &str, words: &str) -> Option<u64> {
    let before = text.split_once(words)?.0;
    before
        .rsplit(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

fn text(cell: &Cell) -> String {
    String::from_utf8_lossy(cell.as_deref().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITS: &str = "\
---TRANSACTION 35, ACTIVE 2 sec starting index read
LOCK WAIT 2 lock struct(s), heap size 1128, 1 row lock(s), undo log entries 3
MariaDB thread id 10, OS thread handle 1, query id 55 localhost root Updating
UPDATE t SET v = 1
------- TRX HAS BEEN WAITING 1234 us FOR THIS LOCK TO BE GRANTED:
RECORD LOCKS space id 5 page no 3 n bits 8 index PRIMARY of table `s_inno`.`t` trx id 35 lock_mode X waiting
Record lock, heap no 2 PHYSICAL RECORD: n_fields 4; compact format; info bits 32
 0: len 4; hex 80000005; asc     ;;

------------------
";

    #[test]
    fn the_lock_that_is_waited_for_is_read_from_the_status() {
        let wanted = of_connection(WAITS, 10).unwrap();
        assert_eq!((&*wanted.table, &*wanted.index), ("t", "PRIMARY"));
        assert!(wanted.is_marked && !wanted.is_intention && !wanted.is_supremum);
        assert_eq!(wanted.key, ["5"]);
        assert_eq!(of_connection(WAITS, 1), None, "another connection");
        let earlier = WAITS.replace("`t`", "`earlier`");
        let status = format!("LATEST DETECTED DEADLOCK\n{earlier}\n{LIST}\n{WAITS}");
        assert_eq!(of_connection(&status, 10).unwrap().table, "t");
    }

    #[test]
    fn locks_that_are_held_are_read_from_the_status() {
        let lock = |mode: &str, keys: &[u32]| {
            let mut text = format!(
                "RECORD LOCKS space id 5 page no 5 n bits 8 index k of table `s_inno`.`t` trx id 35 {mode}\n"
            );
            for key in keys {
                text += &format!(
                    "Record lock, heap no 3 PHYSICAL RECORD: n_fields 1; compact format; info bits 0\n \
                     0: len 4; hex 800000{key:02x}; asc     ;;\n\n"
                );
            }
            text
        };
        let status = format!(
            "{WAITS}{}{}{}",
            lock("lock_mode X", &[7, 8]),
            lock("lock mode S locks gap before rec", &[9]),
            lock("lock_mode X locks rec but not gap waiting", &[10]),
        );
        let found = granted_to(&status, 10);
        let keys: Vec<&str> = found.iter().map(|one| &*one.of.key[0]).collect();
        assert_eq!(keys, ["7", "8", "9"]);
        assert!(found[1].exclusive && !found[1].is_gap);
        assert!(!found[2].exclusive && found[2].is_gap);
        assert_eq!(granted_to(&status, 11), []);
    }

    #[test]
    fn a_wait_behind_its_own_queue_is_told_from_a_wait_for_another() {
        let of = |trx: u64, holders: &[u64]| {
            let lock = "RECORD LOCKS space id 5 page no 3 n bits 8 index PRIMARY of table `s_inno`.`t` trx id";
            let record = "Record lock, heap no 2\n 0: len 4; hex 80000005; asc     ;;\n\n";
            let mut text = format!(
                "\nTRANSACTION {trx}, ACTIVE 0 sec\nMariaDB thread id {trx}, x\n\
                 *** WAITING FOR THIS LOCK TO BE GRANTED:\n{lock} {trx} lock_mode X waiting\n{record}\
                 *** CONFLICTING WITH:\n"
            );
            for holder in holders {
                text += &format!("{lock} {holder} lock mode S locks rec but not gap\n{record}");
            }
            text
        };
        let parties_of = |texts: [String; 2]| texts.map(|text| party(&text).unwrap());
        let parties = parties_of([of(64, &[64]), of(65, &[64])]);
        assert!(parties[0].is_upgrade(&parties));
        assert!(!parties[1].is_upgrade(&parties));
        let both_have_it = parties_of([of(64, &[64, 65]), of(65, &[64, 65])]);
        assert!(!both_have_it[0].is_upgrade(&both_have_it));
        // A third one's lock of the gap in front of the row conflicts with neither.
        let (row, gap) = (
            "66 lock mode S locks rec but not gap",
            "66 lock_mode X locks gap before rec",
        );
        let texts = [of(64, &[64, 66]), of(65, &[64, 66])];
        let beside_gap = parties_of(texts.map(|text| text.replace(row, gap)));
        assert!(beside_gap[0].is_upgrade(&beside_gap));
    }

    #[test]
    fn the_members_of_a_deadlock_of_inkstone_are_read_from_its_status() {
        let status = "\nLATEST DEADLOCK\n---\ndeadlock of 2 transactions:\n  \
            transaction 7 (connection 10, 1 changes) waits for transaction 8 since 3 ms, to insert in tree k of table t, key 80\n    \
            INSERT INTO t VALUES (1, '(connection 99,')\n  \
            transaction 8 (connection 11, 0 changes) waits for transaction 7 since 0 ms, to insert in tree k of table t, key 81\n\
            transaction 8 was rolled back: it had the fewest changes and locks\n  transaction 9 (tag 12, 0 changes)";
        assert_eq!(circle(status), [10, 11]);
        assert!(circle("LATEST").is_empty());
        let report = &status[status.find("deadlock of").unwrap()..];
        let lines = report
            .lines()
            .map(|line| format!("1:02 9 [Note] Inkstone: {line}\n"));
        let log: String = ["x\n".to_owned()].into_iter().chain(lines).collect();
        assert_eq!(first_circle(&log), Some((vec![10, 11], 11)));
        assert_eq!(rolled_back(&format!("{log}{log}")), [11, 11]);
        assert_eq!(first_circle("x"), None);
    }

    #[test]
    fn lines_of_inkstone_are_taken_out_of_innodbs() {
        let log = "*** (1) TRANSACTION:\nRECORD LOCKS space id 5 pag\
            2026-11-25  9:01:02 9 [Note] Inkstone: deadlock of 2 transactions:\n\
            2026-11-25 19:01:02 19 [Note] Inkstone:   transaction 7\n\
            e no 3\n";
        let expected = "*** (1) TRANSACTION:\nRECORD LOCKS space id 5 page no 3\n";
        assert_eq!(without_inkstone(log), expected);
        assert_eq!(without_inkstone(expected), expected);
    }

    #[test]
    fn deadlocks_of_innodb_are_read_from_its_log() {
        let party = |n: u64, connection: u64| {
            format!("*** ({n}) TRANSACTION:\nTRANSACTION {n}\nMariaDB thread id {connection}, x\n")
        };
        let end = "*** WE ROLL BACK TRANSACTION (2)\n";
        let log = format!("x\n{}{}{end}", party(1, 10), party(2, 11));
        let parties = deadlocks(&log).remove(0);
        let connections: Vec<u64> = parties.iter().map(|party| party.connection).collect();
        assert_eq!(connections, [10, 11]);
        let another = format!("{}{}{end}", party(1, 12), party(2, 11));
        let of = |connection| -> Vec<Vec<u64>> {
            let deadlocks = deadlocks_with(&format!("{log}{another}"), connection);
            let connections =
                |parties: &Vec<Party>| parties.iter().map(|it| it.connection).collect();
            deadlocks.iter().map(connections).collect()
        };
        assert_eq!(of(11), [[10, 11], [12, 11]]);
        assert_eq!(of(12), [[12, 11]]);
        assert!(of(13).is_empty());
        let waits = format!(
            "{}*** WAITING FOR THIS LOCK TO BE GRANTED:\nTABLE LOCK table `s`.`n` trx id 7 lock mode AUTO-INC waiting\n{}",
            party(1, 10),
            party(2, 11)
        );
        let of_numbers = deadlocks_with(&waits, 10);
        let wanted_numbers: Vec<bool> = of_numbers[0].iter().map(|it| it.wanted_numbers).collect();
        assert_eq!(wanted_numbers, [true, false]);
        assert_eq!(deadlocks(&format!("{log}{log}x")).len(), 2);
        assert!(deadlocks("x").is_empty());
    }
}
