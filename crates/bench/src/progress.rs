//! Progress on stderr. Bars show only on a terminal (indicatif sees to that).

use indicatif::{ProgressBar, ProgressStyle};
use inkstone::internals::recovery::{Phase, Progress};
use std::borrow::Cow;
use std::time::Duration;

/// A bar for a known number of steps.
pub fn bar(what: impl Into<Cow<'static, str>>, steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    let template = "{msg:<28} [{bar:30}] {human_pos}/{human_len} {per_sec} {elapsed}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what);
    bar
}

/// A bar for a known number of bytes.
pub fn bytes_bar(what: &'static str, bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let template = "{msg:<28} [{bar:30}] {binary_bytes}/{binary_total_bytes} {elapsed}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what);
    bar
}

/// A spinner for something of unknown length.
pub fn spinner(what: impl Into<String>) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{msg:<28} {spinner} {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(what.into());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Shows how far recovery is.
#[derive(Debug)]
pub(crate) struct RecoveryBar {
    bar: ProgressBar,
}

impl RecoveryBar {
    /// A spinner until recovery says something.
    pub fn new() -> Self {
        Self {
            bar: spinner("opening"),
        }
    }

    /// What [`inkstone::Database::open_on`] calls.
    pub fn show(&self, progress: Progress) {
        let message = match progress.phase {
            Phase::Scan => format!(
                "recovery: {} of log read",
                crate::output::bytes(progress.bytes_done)
            ),
            Phase::Apply => format!(
                "recovery: {} of {} pages",
                progress.pages_done, progress.pages_total
            ),
            Phase::Done => "recovery: redo is complete".to_owned(),
        };
        self.bar.set_message(message);
    }
}

impl Drop for RecoveryBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
