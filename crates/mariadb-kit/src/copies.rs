//! Tables that are copied or filled by DDL while servers are killed. What the server notes of such
//! a statement in its own log is durable at once: the engine's rows must be so before it, or a
//! restart puts a table without them in another's place. And numbers of sequences, none of which
//! may come twice.

use super::random::Random;
use super::server::Server;
use super::session::Session;
use inkstone_testkit::build::Result;
use std::time::Duration;

const DATABASE: &str = "copies";
/// Clients at work, each with tables of its own.
const CLIENTS: usize = 4;
/// Rows of a table that is copied over and over.
const ROWS: u64 = 40;
/// How long a server lives, at most.
const LIFE_MS: u64 = 400;

/// What is done to a table; none of it changes the rows. Partitions are [`super::partitioned`]'s.
const COPIES: [&str; 9] = [
    "ENGINE=Inkstone, ALGORITHM=COPY",
    "FORCE, ALGORITHM=COPY",
    "ADD COLUMN IF NOT EXISTS extra INT NOT NULL DEFAULT 7 AFTER id, ALGORITHM=COPY",
    "DROP COLUMN IF EXISTS extra, ALGORITHM=COPY",
    "ENGINE=InnoDB",
    "ENGINE=Inkstone",
    "ADD UNIQUE KEY IF NOT EXISTS of_a (a), ALGORITHM=COPY",
    "ENGINE=Inkstone, PAGE_PLACEMENT=in_place PAGE_COMPRESSED=0",
    "ENGINE=Inkstone, PAGE_PLACEMENT=placed PAGE_COMPRESSED=1",
];

/// A client, and what it knows.
struct Copying {
    number: usize,
    random: Random,
    /// Rows of the table that is made anew, since that was said to be done.
    made: Option<u64>,
    /// As many as a statement would give it that was not answered.
    making: Option<u64>,
    /// The last number of its sequence.
    drawn: u64,
    statements: u64,
    said: String,
}

/// Kills a server under such statements so many times, with each setting of
/// `inkstone_flush_log_at_trx_commit` in turn. How many statements were done.
pub fn check(server: &mut Server, seed: u64, kills: u64) -> Result<u64> {
    let mut clients: Vec<Copying> = (0..CLIENTS)
        .map(|number| Copying::new(seed, number))
        .collect();
    server.sql(&format!("CREATE OR REPLACE DATABASE {DATABASE}"))?;
    for client in &clients {
        server.sql(&client.set_up())?;
    }
    let mut random = Random(seed);
    for kill in 0..kills {
        // DDL is durable under each of them.
        let setting = [1, 2, 0][(kill % 3) as usize];
        server.sql(&format!(
            "SET GLOBAL inkstone_flush_log_at_trx_commit = {setting}"
        ))?;
        let lives = Duration::from_millis(1 + random.below(LIFE_MS));
        live_and_die(server, &mut clients, setting != 0, lives)?;
        server.start()?;
        for client in &mut clients {
            client.check(server).map_err(|error| {
                format!(
                    "after kill {kill}, flush_log_at_trx_commit {setting}, {lives:?}, in \"{}\": {error}",
                    client.said
                )
            })?;
        }
    }
    server.sql(&format!("DROP DATABASE {DATABASE}"))?;
    Ok(clients.iter().map(|client| client.statements).sum())
}

fn live_and_die(
    server: &Server,
    clients: &mut [Copying],
    draws: bool,
    lives: Duration,
) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter_mut()
            .map(|client| scope.spawn(move || client.run(server, draws)))
            .collect();
        std::thread::sleep(lives);
        server.kill();
        let mut joined = threads.into_iter().map(|thread| thread.join());
        joined.try_for_each(|result| result.unwrap_or_else(|_| Err("a client panicked".to_owned())))
    })
}

impl Copying {
    fn new(seed: u64, number: usize) -> Self {
        Self {
            number,
            random: Random(seed ^ ((number as u64) << 32)),
            made: None,
            making: None,
            drawn: 0,
            statements: 0,
            said: String::new(),
        }
    }

    fn set_up(&self) -> String {
        let number = self.number;
        format!(
            "USE {DATABASE}; \
             CREATE TABLE copied_{number} (id INT PRIMARY KEY, a INT, b VARCHAR(100), KEY (b)) ENGINE=Inkstone; \
             INSERT INTO copied_{number} SELECT seq, seq * 3, REPEAT('b', seq) FROM seq_1_to_{ROWS}; \
             CREATE SEQUENCE drawn_{number} NOCACHE ENGINE=Inkstone"
        )
    }

    /// Runs statements until the server is gone. With `draws` numbers of sequences among them,
    /// which are durable as commits are.
    fn run(&mut self, server: &Server, draws: bool) -> Result<()> {
        let mut session = Session::open(server, DATABASE)?;
        loop {
            let number = self.number;
            let choice = self.random.below(12);
            self.said = match choice {
                0 | 1 => {
                    let rows = 1 + self.random.below(2 * ROWS);
                    self.making = Some(rows);
                    format!(
                        "CREATE OR REPLACE TABLE made_{number} (id INT PRIMARY KEY) ENGINE=Inkstone \
                         SELECT seq AS id FROM seq_1_to_{rows};"
                    )
                }
                2 if draws => format!("SELECT NEXTVAL(drawn_{number});"),
                _ => format!("ALTER TABLE copied_{number} {};", self.random.pick(&COPIES)),
            };
            let Some(lines) = session.run(&self.said) else {
                return Ok(());
            };
            self.done(&lines)?;
        }
    }

    fn done(&mut self, lines: &[String]) -> Result<()> {
        let said = &self.said;
        if let Some(error) = lines.iter().find(|line| line.starts_with("ERROR")) {
            return Err(format!("{said} {error}"));
        }
        if said.contains("NEXTVAL") {
            self.draws(lines.first())?;
        }
        if let Some(rows) = self.making.take() {
            self.made = Some(rows);
        }
        self.statements += 1;
        Ok(())
    }

    fn draws(&mut self, line: Option<&String>) -> Result<()> {
        let drawn = line.and_then(|line| line.trim().parse::<u64>().ok());
        let drawn = drawn.ok_or_else(|| format!("a sequence gives {line:?}"))?;
        if drawn <= self.drawn {
            return Err(format!("a sequence gives {drawn} after {}", self.drawn));
        }
        self.drawn = drawn;
        Ok(())
    }

    /// Fails unless all is there that a restart must find.
    fn check(&mut self, server: &Server) -> Result<()> {
        let number = self.number;
        let rows = |table: &str| {
            let count = format!("SELECT COUNT(*), SUM(id) FROM {DATABASE}.{table}_{number}");
            server.sql(&count).map(|line| line.trim().to_owned())
        };
        let found = rows("copied")?;
        if found != format!("{ROWS}\t{}", sum(ROWS)) {
            return Err(format!("copied_{number} has rows and sum {found}"));
        }
        let exists = server.sql(&format!(
            "SELECT table_name FROM information_schema.tables \
             WHERE table_schema = '{DATABASE}' AND table_name = 'made_{number}'"
        ))?;
        let found = (!exists.trim().is_empty())
            .then(|| rows("made"))
            .transpose()?;
        let is = |rows: Option<u64>| found == rows.map(|rows| format!("{rows}\t{}", sum(rows)));
        // The server drops a table that is replaced before it makes the other.
        let possible = match self.making {
            Some(rows) => is(Some(rows)) || is(self.made) || is(None),
            None => is(self.made),
        };
        if !possible {
            return Err(format!(
                "made_{number} has rows and sum {found:?}; it had {:?}, and was to have {:?}",
                self.made, self.making
            ));
        }
        if found.is_none() {
            self.made = None;
        } else if is(self.making) {
            self.made = self.making;
        }
        self.making = None;
        let next = server.sql(&format!("SELECT NEXTVAL({DATABASE}.drawn_{number})"))?;
        self.draws(Some(&next))
    }
}

fn sum(rows: u64) -> u64 {
    rows * (rows + 1) / 2
}
