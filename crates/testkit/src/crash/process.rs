//! Starting children, listening to them, killing them.

use super::protocol::Line;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of a child's stderr that are kept: the last ones.
const STDERR_BYTES_MAX: usize = 64 << 10;

/// A child under way. Killed when dropped.
pub struct Child {
    process: std::process::Child,
    lines: Receiver<Line>,
    stderr: Option<JoinHandle<String>>,
}

/// How a child ended.
#[derive(Debug)]
pub struct Ended {
    /// Lines that had not been read yet.
    pub lines: Vec<Line>,
    /// How it ended.
    pub status: ExitStatus,
    /// The end of what it wrote to stderr.
    pub stderr: String,
}

impl Ended {
    /// Whether it was killed, by us or by another process.
    pub fn was_killed(&self) -> bool {
        self.status.signal() == Some(rustix::process::Signal::KILL.as_raw())
    }
}

impl Child {
    /// Starts a child of this program, in a process group of its own: a Ctrl-C is for the parent.
    pub fn start(arguments: &[String]) -> std::io::Result<Self> {
        // This very program, also if its file has been built anew meanwhile.
        let mut process = Command::new("/proc/self/exe")
            .args(arguments)
            .env("RUST_BACKTRACE", "1")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take();
        let stderr = process.stderr.take();
        let (sender, lines) = channel();
        if let Some(stdout) = stdout {
            std::thread::spawn(move || read_lines(stdout, |line| sender.send(line).is_ok()));
        }
        let stderr = stderr.map(|stderr| std::thread::spawn(move || read_last(stderr)));
        Ok(Self {
            process,
            lines,
            stderr,
        })
    }

    /// The next line, if there is one within the time. `Err` when the child has closed its pipe.
    pub fn line(&self, wait: Duration) -> Result<Option<Line>, ()> {
        match self.lines.recv_timeout(wait) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(()),
        }
    }

    /// SIGKILL: no handler runs, nothing is flushed. A child that is dead already stays what it
    /// was.
    pub fn kill(mut self) -> std::io::Result<Ended> {
        self.process.kill()?;
        self.end()
    }

    /// Waits for a child that has closed its pipe.
    pub fn end(mut self) -> std::io::Result<Ended> {
        let status = self.process.wait()?;
        // Until the pipe is empty.
        let lines = self.lines.iter().collect();
        let stderr = self.stderr.take().map(JoinHandle::join);
        Ok(Ended {
            lines,
            status,
            stderr: stderr.and_then(Result::ok).unwrap_or_default(),
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A last line without an end is none.
fn read_lines(stdout: ChildStdout, mut take: impl FnMut(Line) -> bool) {
    let mut reader = BufReader::new(stdout);
    let mut line = String::new();
    while matches!(reader.read_line(&mut line), Ok(count) if count > 0) {
        if let Some(text) = line.strip_suffix('\n') {
            let parsed = Line::parse(text);
            let strange = || Line::Error(format!("a line that means nothing: {text}"));
            if !take(parsed.unwrap_or_else(strange)) {
                return;
            }
        }
        line.clear();
    }
}

fn read_last(mut pipe: impl Read) -> String {
    let mut last = VecDeque::new();
    let mut piece = [0; 4096];
    while let Ok(count) = pipe.read(&mut piece) {
        if count == 0 {
            break;
        }
        last.extend(&piece[..count]);
        let surplus = last.len().saturating_sub(STDERR_BYTES_MAX);
        last.drain(..surplus);
    }
    String::from_utf8_lossy(last.make_contiguous()).into_owned()
}
