//! A client session that stays open: statements go in one at a time, and what they print comes
//! back.

use super::server::Server;
use inkstone_testkit::build::Result;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A client program on pipes. It goes on after an error of a statement.
pub struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    statements: u64,
}

/// What the client says when its server is gone.
const GONE: [&str; 4] = ["ERROR 2002 ", "ERROR 2006 ", "ERROR 2013 ", "ERROR 2026 "];

impl Session {
    /// Connects.
    pub fn open(server: &Server, database: &str) -> Result<Self> {
        let client = server.client();
        // Errors in the midst of results, where they happened.
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$0\" \"$@\" 2>&1"])
            .arg(client.get_program())
            .args(client.get_args())
            .args([
                "--batch",
                "--skip-column-names",
                "--force",
                "--unbuffered",
                "--skip-reconnect",
            ])
            .arg(format!("--database={database}"))
            .envs(
                client
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("the client cannot be started: {error}"))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Ok(Self {
                child,
                input,
                output: BufReader::new(output),
                statements: 0,
            }),
            _ => Err("the client has no pipes".to_owned()),
        }
    }

    /// Runs statements, each ended by a semicolon; gives the lines that they print, those that
    /// begin with `ERROR` among them. Gives nothing once the server is gone.
    pub fn run(&mut self, statements: &str) -> Option<Vec<String>> {
        self.statements += 1;
        let end = format!("#end {}", self.statements);
        let text = format!("{statements}\nSELECT '{end}';\n");
        self.input.write_all(text.as_bytes()).ok()?;
        self.input.flush().ok()?;
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end_matches('\n');
            if GONE.iter().any(|gone| line.starts_with(gone)) {
                return None;
            }
            if line == end {
                return Some(lines);
            }
            lines.push(line.to_owned());
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
