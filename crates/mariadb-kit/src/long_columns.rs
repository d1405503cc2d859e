//! What rows with long columns cost: a number of one is read without its long columns' pages, and
//! an UPDATE of the number logs no more than the row.

use super::server::Server;
use inkstone_testkit::build::Result;

/// Rows, and bytes of the BLOB of each: 64 pages and more.
const ROWS: u64 = 50;
const BYTES: u64 = 1 << 20;
/// What the row itself takes, of the log a mini-transaction and of the reads its leaf, and what
/// runs beside.
const LOG_OF_A_ROW: u64 = 1000;
const READS_OF_A_ROW: u64 = 4;

/// Checks it on a server without other clients, whose pool may hold all.
pub fn check(server: &Server) -> Result<()> {
    server.sql(&format!(
        "CREATE OR REPLACE DATABASE long_columns; USE long_columns; \
         CREATE TABLE t (id INT PRIMARY KEY, n INT, b LONGBLOB, k INT, KEY (k)) ENGINE=Inkstone; \
         INSERT INTO t SELECT seq, seq, REPEAT(MD5(seq), {BYTES} DIV 32), seq FROM seq_1_to_{ROWS}"
    ))?;
    let reads = [
        "SELECT SUM(n) FROM t",
        "SELECT SUM(n) FROM t WHERE id BETWEEN 1 AND 1000",
        "SELECT SUM(n) FROM t FORCE INDEX (k) WHERE k > 0",
        "SELECT a.n, SUM(z.n) FROM t a JOIN t z ON z.id = a.k",
    ];
    for statement in reads {
        let requests = spent(server, "inkstone_buffer_read_requests", statement)?;
        println!("{requests} pages looked at: {statement}");
        if requests > ROWS * READS_OF_A_ROW {
            return Err(format!("{statement} looks at {requests} pages"));
        }
    }
    let whole = spent(
        server,
        "inkstone_buffer_read_requests",
        "SELECT BIT_XOR(CRC32(b)) FROM t",
    )?;
    if whole < ROWS * BYTES / 16384 {
        return Err(format!("only {whole} pages are looked at for all of it"));
    }
    for (statement, most) in [
        ("UPDATE t SET n = n + 1", ROWS * LOG_OF_A_ROW),
        (
            "UPDATE t SET n = n + 1, b = CONCAT(b, 'x') WHERE id = 7",
            2 * BYTES,
        ),
    ] {
        let bytes = spent(server, "inkstone_log_bytes", statement)?;
        println!("{bytes} bytes of log: {statement}");
        if bytes > most {
            return Err(format!("{statement} logs {bytes} bytes"));
        }
    }
    server.sql("DROP DATABASE long_columns").map(drop)
}

/// How much a status variable grows by a statement.
fn spent(server: &Server, variable: &str, statement: &str) -> Result<u64> {
    let ask = format!(
        "SELECT variable_value FROM information_schema.global_status WHERE variable_name = '{variable}'"
    );
    let answer = server.sql(&format!("USE long_columns; {ask}; {statement}; {ask}"))?;
    let numbers = |line: Option<&str>| -> Result<u64> {
        let line = line.ok_or_else(|| format!("no {variable} in {answer:?}"))?;
        let number = line.trim().parse();
        number.map_err(|_| format!("{variable} is {line:?} in {answer:?}"))
    };
    let before = numbers(answer.lines().next())?;
    let after = numbers(answer.lines().next_back())?;
    Ok(after.saturating_sub(before))
}
