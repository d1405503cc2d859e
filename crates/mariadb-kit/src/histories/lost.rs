//! What a client does whose connection is gone: the server was killed, or the connection was. Then
//! it connects again, waits until its old connection has ended, and ends what that has left
//! prepared.

use super::client::{Client, Done, Running, Stop};
use crate::client::{Client as Connection, Refusal};
use inkstone_testkit::history::Outcome;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a connection that was killed may take to end.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOKS_APART: Duration = Duration::from_millis(1);

/// How a client is connected.
pub struct Line<'s> {
    connect: Box<dyn Fn() -> Result<Connection, String> + Sync + 's>,
    /// The connection's number, for what kills connections.
    pub id: AtomicU32,
}

impl<'s> Line<'s> {
    /// With what makes another connection.
    pub fn new(connect: impl Fn() -> Result<Connection, String> + Sync + 's, id: u32) -> Self {
        Self {
            connect: Box::new(connect),
            id: AtomicU32::new(id),
        }
    }

    /// Of a connection that is not made again.
    pub fn none() -> Self {
        Self::new(|| Err("the connection is not made again".to_owned()), 0)
    }
}

/// What a transaction was about when its connection went.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Working,
    RollingBack,
    Committing,
}

impl Client<'_> {
    /// What becomes of a transaction, if one has begun, whose statement ended so; and whether the
    /// server still answers.
    pub(super) fn lose(
        &mut self,
        stop: Stop,
        running: Option<&Running>,
        phase: Phase,
    ) -> Result<(Outcome, bool), String> {
        match stop {
            Stop::Gone(_) if self.is_server_killed() => Ok((Self::killed(running, phase), false)),
            Stop::Gone(_) if self.world.kills_connections => self.connect_again(running, phase),
            Stop::Gone(text) => Err(format!("the server is gone: {text}")),
            Stop::Refused(refusal) | Stop::Over(refusal) => Err(self.refused(&refusal)),
            Stop::Wrong(text) => Err(text),
        }
    }

    /// What is known of a transaction that was cut off so.
    fn cut_off(phase: Phase) -> Outcome {
        match phase {
            Phase::Committing => Outcome::Unknown,
            _ => Outcome::Aborted("the connection was cut off".to_owned()),
        }
    }

    /// The same, if the server was killed. What the client had prepared in order to roll it back
    /// may be found prepared, and committed.
    fn killed(running: Option<&Running>, phase: Phase) -> Outcome {
        match phase {
            Phase::RollingBack if running.is_some_and(|running| running.xa.is_some()) => {
                Outcome::Unknown
            }
            _ => Self::cut_off(phase),
        }
    }

    fn refused(&self, refusal: &Refusal) -> String {
        let Refusal { code, message } = refusal;
        format!("{}: error {code}: {message}", self.said)
    }

    fn is_server_killed(&self) -> bool {
        self.world.killed.load(Ordering::SeqCst)
    }

    fn connect_again(
        &mut self,
        running: Option<&Running>,
        phase: Phase,
    ) -> Result<(Outcome, bool), String> {
        let old = self.connection.id();
        self.connection = match (self.line.connect)() {
            Ok(connection) => connection,
            Err(_) if self.is_server_killed() => return Ok((Self::killed(running, phase), false)),
            Err(text) => return Err(text),
        };
        let world = self.world;
        world.connections_killed.fetch_add(1, Ordering::Relaxed);
        let name = running.and_then(|running| running.xa.as_deref());
        match self.settle(old, name, phase) {
            Ok(outcome) => {
                self.line.id.store(self.connection.id(), Ordering::Relaxed);
                Ok((outcome, true))
            }
            // This connection is killed by nothing: its number is not known yet.
            Err(Stop::Gone(_)) if self.is_server_killed() => {
                Ok((Self::killed(running, phase), false))
            }
            Err(Stop::Gone(text) | Stop::Wrong(text)) => Err(text),
            Err(Stop::Refused(refusal) | Stop::Over(refusal)) => Err(self.refused(&refusal)),
        }
    }

    /// Waits for the old connection's end; then its transaction is over, or prepared.
    fn settle(&mut self, old: u32, name: Option<&str>, phase: Phase) -> Done<Outcome> {
        let listed = format!("SELECT id FROM information_schema.processlist WHERE id = {old}");
        let begun = Instant::now();
        while !self.rows(&listed)?.is_empty() {
            if begun.elapsed() > PATIENCE {
                let text = format!("connection {old} was killed, and is there after {PATIENCE:?}");
                return Err(Stop::Wrong(text));
            }
            std::thread::sleep(LOOKS_APART);
        }
        let Some(name) = name else {
            return Ok(Self::cut_off(phase));
        };
        let prepared = self.rows("XA RECOVER")?;
        if !prepared.iter().any(|row| row[3] == name) {
            return Ok(Self::cut_off(phase));
        }
        let world = self.world;
        world.prepared_detached.fetch_add(1, Ordering::Relaxed);
        let commits = phase == Phase::Committing && self.random.chance(50);
        let how = if commits { "COMMIT" } else { "ROLLBACK" };
        let is_rolled_back = self.ends_xa(&format!("XA {how} '{name}'"))?;
        if commits && !is_rolled_back {
            return Ok(self.committed());
        }
        Ok(Outcome::Aborted(
            "rolled back by another connection".to_owned(),
        ))
    }
}
