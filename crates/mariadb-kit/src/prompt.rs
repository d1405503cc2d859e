//! The server that stays: `cargo xtask mariadb`, `--sql FILE`, `stop`.

use super::plugin::Plugin;
use super::server::Server;
use super::tree::{Tree, home};
use inkstone_testkit::build::{Result, status};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Starts the server if it does not run, and opens the SQL prompt.
pub fn open(tree: &Tree, plugin: &Plugin) -> Result<ExitCode> {
    let server = running(tree, plugin)?;
    eprintln!(
        "MariaDB {} with Inkstone listens on {}\n`cargo xtask mariadb stop` ends it; its data stays in {}",
        tree.version,
        server.socket().display(),
        server.data().display()
    );
    let code = status(server.client().args(["--database=test"]));
    leave(server, plugin)?;
    code
}

/// Runs a file of SQL in the server that stays; its output goes to standard output.
pub fn run_file(tree: &Tree, plugin: &Plugin, file: &Path) -> Result<ExitCode> {
    let input = std::fs::File::open(file)
        .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let server = running(tree, plugin)?;
    let mut client = server.client();
    client.args(["--batch", "--database=test"]).stdin(input);
    let code = status(&mut client);
    leave(server, plugin)?;
    code
}

/// Ends the server.
pub fn stop(tree: &Tree) -> Result<ExitCode> {
    let server = Server::new(tree, &home().join("run"));
    if !server.answers() {
        eprintln!("no server runs in {}", server.folder().display());
        return Ok(ExitCode::SUCCESS);
    }
    server.stop()?;
    eprintln!("the server has ended");
    Ok(ExitCode::SUCCESS)
}

/// The server goes on; one that sanitizers watch ends, because their reports are judged now.
fn leave(server: Server, plugin: &Plugin) -> Result<()> {
    if plugin.is_sanitized() {
        return match server.exited() {
            Some(status) => Err(format!(
                "the server ended ({status}):\n{}",
                server.end_of_log()
            )),
            None => server.stop(),
        };
    }
    server.detach();
    Ok(())
}

/// Each build of the plugin has a server of its own.
fn folder(plugin: &Plugin) -> PathBuf {
    home().join(if plugin.is_sanitized() {
        "run-sanitized"
    } else {
        "run"
    })
}

/// The server, started anew if the plugin was built since.
fn running(tree: &Tree, plugin: &Plugin) -> Result<Server> {
    let mut server = Server::new(tree, &folder(plugin)).with_plugin(plugin);
    if server.answers() {
        // The server writes its id when it starts.
        if is_older(&plugin.library, &server.folder().join("server.pid")) {
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
