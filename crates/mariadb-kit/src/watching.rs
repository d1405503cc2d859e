//! What the engine shows of lock waits and deadlocks: the tables of `information_schema`, the
//! status, the error log.

use super::server::Server;
use super::session::Session;
use inkstone_testkit::build::Result;
use std::time::{Duration, Instant};

/// A wait that has not begun by then does not begin.
const PATIENCE: Duration = Duration::from_secs(60);
const DATABASE: &str = "watching";

/// Checks it on a server without other clients.
pub fn check(server: &Server) -> Result<()> {
    server.sql(
        "CREATE OR REPLACE DATABASE watching; \
         CREATE TABLE watching.w (id INT PRIMARY KEY, v INT, KEY by_v (v)) ENGINE=Inkstone; \
         INSERT INTO watching.w VALUES (1, 10), (2, 20), (3, 30)",
    )?;
    check_queue(server)?;
    check_statement_lock(server)?;
    check_deadlocks(server)?;
    check_times(server)?;
    server.sql("DROP DATABASE watching").map(drop)
}

/// A session whose lock waits do not time out here, and its number.
fn open(server: &Server) -> Result<(Session, String)> {
    let mut session = Session::open(server, DATABASE)?;
    say(&mut session, "SET inkstone_lock_wait_timeout = 3600;")?;
    let id = say(&mut session, "SELECT CONNECTION_ID();")?;
    Ok((session, id.concat()))
}

fn say(session: &mut Session, statements: &str) -> Result<Vec<String>> {
    session
        .run(statements)
        .ok_or_else(|| "the server is gone".to_owned())
}

/// Waits until so many sessions wait for locks.
fn until_waiting(server: &Server, count: usize) -> Result<()> {
    let ask =
        "SELECT COUNT(DISTINCT requesting_trx_id) FROM information_schema.inkstone_lock_waits";
    let began = Instant::now();
    while server.sql(ask)?.trim() != count.to_string() {
        if began.elapsed() > PATIENCE {
            return Err(format!("not {count} sessions wait, as they should"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn expect(what: &str, found: &str, expected: &str) -> Result<()> {
    if found.trim() == expected {
        Ok(())
    } else {
        Err(format!("{what}:\n{found}\ninstead of\n{expected}"))
    }
}

fn expect_in(what: &str, text: &str, parts: &[&str]) -> Result<()> {
    match parts.iter().find(|part| !text.contains(**part)) {
        None => Ok(()),
        Some(part) => Err(format!("{what} lacks {part:?}:\n{text}")),
    }
}

/// One gives out numbers of AUTO_INCREMENT in the middle of its rows, another waits for them, which
/// the status says as it is: for the table, and none of its trees. A KILL QUERY ends the wait, and
/// the next waiter gets the numbers.
fn check_statement_lock(server: &Server) -> Result<()> {
    server.sql(
        "CREATE TABLE watching.numbers (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=Inkstone; \
         CREATE TABLE watching.source (id INT PRIMARY KEY) ENGINE=Inkstone; \
         INSERT INTO watching.source VALUES (1), (2), (3)",
    )?;
    let [
        mut holder,
        (mut first, first_id),
        (mut second, second_id),
        mut third,
    ] = [open(server)?, open(server)?, open(server)?, open(server)?];
    say(
        &mut holder.0,
        "BEGIN; SELECT * FROM source WHERE id = 2 FOR UPDATE;",
    )?;
    let wanted = "INSERT INTO numbers (v) SELECT 20 UNION ALL SELECT 21";
    std::thread::scope(|scope| {
        let filling =
            scope.spawn(move || say(&mut first, "INSERT INTO numbers (v) SELECT id FROM source;"));
        until_waiting(server, 1)?;
        let killed = scope.spawn(move || say(&mut second, &format!("{wanted};")));
        until_waiting(server, 2)?;
        let status = server.sql("SHOW ENGINE INKSTONE STATUS")?;
        let waits = server.sql(
            "SELECT w.requesting_thread_id, b.trx_mysql_thread_id, w.lock_table, w.lock_index, w.queue_place \
             FROM information_schema.inkstone_lock_waits w \
             JOIN information_schema.inkstone_trx b ON b.trx_id = w.blocking_trx_id \
             WHERE w.lock_table = 'watching/numbers'",
        )?;
        server.sql(&format!("KILL QUERY {second_id}"))?;
        let killed = killed.join().map_err(|_| "a session panicked")??;
        let next =
            scope.spawn(move || say(&mut third.0, "INSERT INTO numbers (v) VALUES (30), (31);"));
        until_waiting(server, 2)?;
        say(&mut holder.0, "COMMIT;")?;
        for thread in [filling, next] {
            let printed = thread.join().map_err(|_| "a session panicked")??;
            expect("the session with the numbers", &printed.concat(), "")?;
        }
        let waiter = format!("connection {second_id}, waits for transaction");
        let place = "place 1 in the queue, to lock exclusive in table watching/numbers, in none of its trees";
        expect_in(
            "SHOW ENGINE INKSTONE STATUS",
            &status,
            &["2 that wait", &waiter, place, wanted],
        )?;
        let expected = format!("{second_id}\t{first_id}\twatching/numbers\t\t1");
        expect("INKSTONE_LOCK_WAITS", &waits, &expected)?;
        // Also a KILL's error is this one where a number was asked for, as in InnoDB.
        expect_in("the killed session", &killed.concat(), &["ERROR 1467"])
    })?;
    let rows = server.sql("SELECT * FROM watching.numbers ORDER BY id")?;
    // The first reserves 1, 2 and 3, 4 to 7, and uses three.
    let rows = rows.split_whitespace().collect::<Vec<_>>().join(" ");
    expect("numbers given out", &rows, "1 1 2 2 3 3 4 30 5 31")
}

/// One has changed a row, two others wait for it, and an insert for a gap.
fn check_queue(server: &Server) -> Result<()> {
    let (mut holder, holder_id) = open(server)?;
    let (mut reader, reader_id) = open(server)?;
    say(&mut holder, "BEGIN; UPDATE w SET v = 11 WHERE id = 1;")?;
    say(
        &mut reader,
        "BEGIN; SELECT * FROM w FORCE INDEX (PRIMARY) WHERE id > 3 FOR UPDATE;",
    )?;
    let statements = [
        "UPDATE w SET v = 12 WHERE id = 1",
        "SELECT v FROM w WHERE id = 1 FOR UPDATE",
        "INSERT INTO w VALUES (4, 40)",
    ];
    let waiters = [open(server)?, open(server)?, open(server)?];
    let ids = waiters.each_ref().map(|(_, id)| id.clone());
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (n, ((mut session, _), statement)) in waiters.into_iter().zip(statements).enumerate() {
            threads.push(scope.spawn(move || say(&mut session, &format!("{statement};"))));
            until_waiting(server, n + 1)?;
        }
        let looked = look_at_queue(server, &holder_id, &reader_id, &ids, statements);
        say(&mut holder, "COMMIT;")?;
        say(&mut reader, "COMMIT;")?;
        for thread in threads {
            let printed = thread.join().map_err(|_| "a session panicked")??;
            if let Some(error) = printed.iter().find(|line| line.starts_with("ERROR")) {
                return Err(format!("a waiter got {error}"));
            }
        }
        looked
    })
}

fn look_at_queue(
    server: &Server,
    holder: &str,
    reader: &str,
    [first, second, third]: &[String; 3],
    statements: [&str; 3],
) -> Result<()> {
    let table = "watching/w";
    let locks = server.sql(
        "SELECT lock_thread_id, lock_state, lock_mode, lock_type, lock_table, lock_index, lock_place, lock_query \
         FROM information_schema.inkstone_locks ORDER BY lock_state, lock_type DESC, lock_place",
    )?;
    let expected = format!(
        "{holder}\tCHANGED\tX\tROW\t{table}\tprimary\tNULL\tNULL\n\
         {holder}\tHELD\tX\tROW\t{table}\tprimary\tNULL\tNULL\n\
         {reader}\tHELD\tS\tGAP\t{table}\tprimary\tNULL\tNULL\n\
         {first}\tWAITING\tX\tROW\t{table}\tprimary\t1\t{}\n\
         {second}\tWAITING\tX\tROW\t{table}\tprimary\t2\t{}\n\
         {third}\tWAITING\tX\tINSERT\t{table}\tprimary\t1\t{}",
        statements[0], statements[1], statements[2]
    );
    expect("INKSTONE_LOCKS", &locks, &expected)?;
    let waits = server.sql(
        "SELECT w.requesting_thread_id, b.trx_mysql_thread_id, w.requested_lock_type, w.queue_place, \
         w.waited_ms >= 0, w.requesting_query = r.trx_query, r.trx_waits_for = b.trx_id, b.trx_query \
         FROM information_schema.inkstone_lock_waits w \
         JOIN information_schema.inkstone_trx b ON b.trx_id = w.blocking_trx_id \
         JOIN information_schema.inkstone_trx r ON r.trx_id = w.requesting_trx_id ORDER BY 1",
    )?;
    let expected = format!(
        "{first}\t{holder}\tROW\t1\t1\t1\t1\tNULL\n\
         {second}\t{first}\tROW\t2\t1\t1\t1\t{}\n\
         {third}\t{reader}\tINSERT\t1\t1\t1\t1\tNULL",
        statements[0]
    );
    expect("INKSTONE_LOCK_WAITS", &waits, &expected)?;
    let status = server.sql("SHOW ENGINE INKSTONE STATUS")?;
    let waiter = format!("connection {second}, waits for transaction");
    let place = "place 2 in the queue, to lock exclusive in tree primary of table watching/w";
    let parts = [
        " INKSTONE STATUS",
        "Counters since ",
        "LOCK WAITS",
        "3 that wait",
        &waiter,
        place,
        statements[0],
        statements[2],
    ];
    expect_in("SHOW ENGINE INKSTONE STATUS", &status, &parts)?;
    expect(
        "current waits",
        &counter(server, "row_lock_current_waits")?.to_string(),
        "3",
    )
}

fn counter(server: &Server, name: &str) -> Result<u64> {
    let value = server.sql(&format!(
        "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'inkstone_{name}'"
    ))?;
    let number = value.trim().parse();
    number.map_err(|error| format!("inkstone_{name} is {value:?}: {error}"))
}

/// How often the error log tells of a deadlock.
fn deadlocks_logged(server: &Server) -> Result<usize> {
    let log = std::fs::read_to_string(server.log());
    let log = log.map_err(|error| format!("the error log cannot be read: {error}"))?;
    Ok(log.matches("Inkstone: deadlock of 2 transactions").count())
}

/// Two deadlocks: the first goes to the error log, both are counted and stand in the status.
fn check_deadlocks(server: &Server) -> Result<()> {
    let before = (counter(server, "deadlocks")?, deadlocks_logged(server)?);
    for (round, logged) in [(1, "ON"), (2, "OFF")] {
        server.sql(&format!(
            "SET GLOBAL inkstone_print_all_deadlocks = {logged}"
        ))?;
        let statements = [2, 1].map(|id| format!("UPDATE w SET v = {round}00 WHERE id = {id}"));
        let [mut a, mut b] = [open(server)?.0, open(server)?.0];
        say(&mut a, "BEGIN; UPDATE w SET v = 1 WHERE id = 1;")?;
        say(&mut b, "BEGIN; UPDATE w SET v = 2 WHERE id = 2;")?;
        let outcomes = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| say(&mut a, &format!("{}; ROLLBACK;", statements[0])));
            until_waiting(server, 1)?;
            let closing = say(&mut b, &format!("{}; ROLLBACK;", statements[1]))?;
            let waiting = waiting.join().map_err(|_| "a session panicked")??;
            Ok::<_, String>([waiting, closing].concat().join("\n"))
        })?;
        expect(
            "victims of a deadlock",
            &outcomes.matches("ERROR 1213").count().to_string(),
            "1",
        )?;
        let status = server.sql("SHOW ENGINE INKSTONE STATUS")?;
        let parts = [
            "Latest deadlock at ",
            "LATEST DEADLOCK",
            "tree primary of table watching/w",
            &statements[0],
            &statements[1],
        ];
        expect_in("SHOW ENGINE INKSTONE STATUS", &status, &parts)?;
        let found = (counter(server, "deadlocks")?, deadlocks_logged(server)?);
        let expected = (before.0 + round, before.1 + 1);
        expect(
            "deadlocks counted and logged",
            &format!("{found:?}"),
            &format!("{expected:?}"),
        )?;
    }
    let log = std::fs::read_to_string(server.log()).unwrap_or_default();
    let logged = [
        "UPDATE w SET v = 100 WHERE id = 1",
        "UPDATE w SET v = 100 WHERE id = 2",
    ];
    expect_in("the error log", &log, &logged)
}

/// Waits, timeouts and how long they took.
fn check_times(server: &Server) -> Result<()> {
    let names = ["lock_timeouts", "row_lock_waits", "row_lock_time"];
    let read = || {
        names
            .iter()
            .map(|name| counter(server, name))
            .collect::<Result<Vec<_>>>()
    };
    let before = read()?;
    let (mut holder, _) = open(server)?;
    let (mut waiter, _) = open(server)?;
    say(&mut holder, "BEGIN; UPDATE w SET v = 5 WHERE id = 3;")?;
    let refused = say(
        &mut waiter,
        "SET inkstone_lock_wait_timeout = 0; UPDATE w SET v = 6 WHERE id = 3; SET inkstone_lock_wait_timeout = 3600;",
    )?;
    expect_in("a wait of no time", &refused.concat(), &["ERROR 1205"])?;
    let waited = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| say(&mut waiter, "UPDATE w SET v = 7 WHERE id = 3;"));
        until_waiting(server, 1)?;
        std::thread::sleep(Duration::from_millis(30));
        let waited = server.sql("SELECT waited_ms FROM information_schema.inkstone_lock_waits")?;
        say(&mut holder, "COMMIT;")?;
        waiting.join().map_err(|_| "a session panicked")??;
        waited
            .trim()
            .parse::<u64>()
            .map_err(|error| format!("waited {waited:?}: {error}"))
    })?;
    let after = read()?;
    let time = after[2] - before[2];
    let (avg, max) = (
        counter(server, "row_lock_time_avg")?,
        counter(server, "row_lock_time_max")?,
    );
    if after[0] != before[0] + 1
        || after[1] < before[1] + 2
        || time < waited
        || max < waited
        || avg > max
    {
        return Err(format!(
            "a timeout and a wait of {waited} ms: {names:?} before {before:?}, after {after:?}; avg {avg}, max {max}"
        ));
    }
    let histogram = server.sql(
        "SELECT SUM(h.count) = d.count, MAX(h.longest_ns) * 2 > d.max_us * 1000 \
         FROM information_schema.inkstone_duration_histogram h \
         JOIN information_schema.inkstone_durations d ON d.operation = h.operation \
         WHERE h.operation = 'row_lock_wait' GROUP BY d.count, d.max_us",
    )?;
    expect("the histogram of waits for rows", &histogram, "1\t1")
}
