//! Statements that are killed while they wait in a deadlock: the statement fails alone, or its
//! whole transaction is rolled back, and its client is told which.

use super::client::{Client, Reply};
use super::server::Server;
use inkstone_testkit::build::Result;
use std::io;
use std::time::Duration;

/// Kills, each at another moment around that at which the deadlock closes.
const KILLS: u32 = 160;
/// From one moment to the next.
const APART: Duration = Duration::from_micros(50);
/// As many moments.
const MOMENTS: u32 = 16;
/// What lets a statement begin to wait.
const BEFORE: Duration = Duration::from_millis(4);

/// `ER_QUERY_INTERRUPTED`.
const KILLED: u16 = 1317;
const DEADLOCK: u16 = 1213;

/// Checks it on a server without other clients.
pub fn check(server: &Server) -> Result<()> {
    server.sql(
        "CREATE OR REPLACE DATABASE kills; USE kills; \
         CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE = Inkstone; \
         INSERT INTO t SELECT seq, 0 FROM seq_1_to_20",
    )?;
    let killed = kill_often(server).map_err(|error| format!("kills in deadlocks: {error}"))?;
    if killed == 0 {
        return Err(format!("none of {KILLS} kills came before its deadlock"));
    }
    server.sql("DROP DATABASE kills").map(drop)
}

/// How many statements failed alone.
fn kill_often(server: &Server) -> io::Result<u32> {
    let mut sessions = Sessions::connect(server)?;
    let mut alone = 0;
    for n in 0..KILLS {
        alone += u32::from(sessions.kill_once(APART * (n % MOMENTS))?);
    }
    Ok(alone)
}

struct Sessions {
    killed: Client,
    /// Closes the circle. It has changed more, so that it is not the victim.
    closing: Client,
    killing: Client,
    kill: String,
}

impl Sessions {
    fn connect(server: &Server) -> io::Result<Self> {
        let connect = || -> io::Result<Client> {
            let mut client = Client::connect(server.socket())?;
            client.run("USE kills")?;
            Ok(client)
        };
        let killed = connect()?;
        let kill = format!("KILL QUERY {}", killed.id());
        Ok(Self {
            killed,
            closing: connect()?,
            killing: connect()?,
            kill,
        })
    }

    /// Whether the statement failed alone.
    fn kill_once(&mut self, moment: Duration) -> io::Result<bool> {
        let Self {
            killed,
            closing,
            killing,
            kill,
        } = self;
        whole(killed, "BEGIN")?;
        whole(killed, "UPDATE t SET v = 1 WHERE id = 1")?;
        closing.run("BEGIN")?;
        closing.run("UPDATE t SET v = 2 WHERE id IN (2, 11, 12, 13, 14)")?;
        let (reply, is_open) = std::thread::scope(|scope| -> io::Result<_> {
            let waiting = scope.spawn(|| {
                let reply = killed.run("UPDATE t SET v = 3 WHERE id = 2")?;
                let is_open = cell(killed, "SELECT @@in_transaction")? == "1";
                whole(killed, "ROLLBACK")?;
                io::Result::Ok((reply, is_open))
            });
            std::thread::sleep(BEFORE);
            let closed = scope.spawn(|| closing.run("UPDATE t SET v = 4 WHERE id = 1"));
            std::thread::sleep(moment);
            killing.run(kill)?;
            let panicked = || io::Error::other("a session panicked");
            let ended = waiting.join().map_err(|_| panicked())?;
            closed.join().map_err(|_| panicked())??;
            ended
        })?;
        self.closing.run("ROLLBACK")?;
        match reply {
            Reply::Refused(refusal) if refusal.code == KILLED && is_open => Ok(true),
            Reply::Refused(refusal) if refusal.code == DEADLOCK && !is_open => Ok(false),
            reply => Err(io::Error::other(format!(
                "{reply:?}, and the transaction is {}",
                if is_open { "open" } else { "gone" }
            ))),
        }
    }
}

/// Runs a statement again that was killed instead of the one before it.
fn whole(client: &mut Client, statement: &str) -> io::Result<Reply> {
    loop {
        match client.run(statement)? {
            Reply::Refused(refusal) if refusal.code == KILLED => {}
            reply => return Ok(reply),
        }
    }
}

fn cell(client: &mut Client, statement: &str) -> io::Result<String> {
    let reply = whole(client, statement)?;
    let Reply::Rows(found) = &reply else {
        return Err(io::Error::other(format!("{statement}: {reply:?}")));
    };
    let cell = found.rows.first().and_then(|row| row.first()?.as_ref());
    let text = cell.map(|cell| String::from_utf8_lossy(cell).into_owned());
    text.ok_or_else(|| io::Error::other(format!("{statement} gives nothing")))
}
