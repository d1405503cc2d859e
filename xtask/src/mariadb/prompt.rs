//! The server that stays: `cargo xtask mariadb`, `--sql FILE`, `stop`.

use super::server::Server;
use super::tree::{Tree, home};
use crate::build::{Result, status};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Starts the server if it does not run, and opens the SQL prompt.
pub fn open(tree: &Tree, plugin: &Path) -> Result<ExitCode> {
    let server = running(tree, plugin)?;
    eprintln!(
        "MariaDB {} with Inkstone listens on {}\n`cargo xtask mariadb stop` ends it; its data stays in {}",
        tree.version,
        server.socket().display(),
        server.data().display()
    );
    let code = status(server.client().args(["--database=test"]));
    server.detach();
    code
}

/// Runs a file of SQL in the server that stays; its output goes to standard output.
pub fn run_file(tree: &Tree, plugin: &Path, file: &Path) -> Result<ExitCode> {
    let input = std::fs::File::open(file)
        .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let server = running(tree, plugin)?;
    let mut client = server.client();
    client.args(["--batch", "--database=test"]).stdin(input);
    let code = status(&mut client);
    server.detach();
    code
}

/// Ends the server.
pub fn stop(tree: &Tree) -> Result<ExitCode> {
    let server = Server::new(tree, &folder());
    if !server.answers() {
        eprintln!("no server runs in {}", folder().display());
        return Ok(ExitCode::SUCCESS);
    }
    server.stop()?;
    eprintln!("the server has ended");
    Ok(ExitCode::SUCCESS)
}

fn folder() -> PathBuf {
    home().join("run")
}

/// The server, started anew if the plugin was built since.
fn running(tree: &Tree, plugin: &Path) -> Result<Server> {
    let mut server = Server::new(tree, &folder()).with_plugin(plugin);
    if server.answers() {
        // The server writes its id when it starts.
        if is_older(plugin, &server.folder().join("server.pid")) {
            return Ok(server);
        }
        eprintln!("the plugin was built since the server started: starting it anew");
        server.stop()?;
    }
    server.start_detached()?;
    Ok(server)
}

fn is_older(a: &Path, b: &Path) -> bool {
    let modified = |path| std::fs::metadata(path).and_then(|metadata| metadata.modified());
    matches!((modified(a), modified(b)), (Ok(a), Ok(b)) if a <= b)
}
