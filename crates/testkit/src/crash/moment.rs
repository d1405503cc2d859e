//! When a child is killed, and listening to it until then.

use super::process::Child;
use super::protocol::Line;
use crate::fuse::Trigger;
use std::time::{Duration, Instant};

/// A child that says nothing for so long hangs.
pub const SILENCE_MAX: Duration = Duration::from_secs(120);

/// When a child is killed.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// So long after it has begun to open.
    Opening(Duration),
    /// So long after the first rows were there.
    Working(Duration),
    /// When the power fails, which it does then; or so long after it was open.
    PowerLoss(Trigger, Duration),
    /// When it has said everything.
    Complete,
    /// Never: it ends by itself.
    Never,
}

/// Why a child is listened to no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is time to kill it.
    Kill,
    /// It has closed its pipe.
    Closed,
    /// It has said nothing for [`SILENCE_MAX`].
    Hangs,
}

impl Moment {
    /// How long after this line the child is killed, if the line says so.
    fn deadline(self, line: &Line) -> Option<Duration> {
        match (self, line) {
            (Moment::Opening(after), Line::Opening) => Some(after),
            (Moment::Working(after), Line::Loaded) => Some(after),
            (Moment::Complete, Line::Complete) => Some(Duration::ZERO),
            (Moment::PowerLoss(_, patience), Line::Open) => Some(patience),
            _ => None,
        }
    }
}

/// Listens to a child until its moment, or until `over`.
pub fn listen(
    child: &Child,
    moment: Moment,
    over: &dyn Fn() -> bool,
    lines: &mut Vec<Line>,
) -> Reason {
    let mut deadline = None;
    let mut heard = Instant::now();
    loop {
        let left = deadline.map(|at: Instant| at.saturating_duration_since(Instant::now()));
        if over() || left == Some(Duration::ZERO) {
            return Reason::Kill;
        }
        let wait = left.unwrap_or(SILENCE_MAX).min(Duration::from_millis(5));
        let line = match child.line(wait) {
            Err(()) => return Reason::Closed,
            Ok(None) if heard.elapsed() > SILENCE_MAX => return Reason::Hangs,
            Ok(None) => continue,
            Ok(Some(line)) => line,
        };
        heard = Instant::now();
        if let Some(after) = moment.deadline(&line) {
            deadline = Some(deadline.unwrap_or(heard + after));
        }
        lines.push(line);
    }
}
