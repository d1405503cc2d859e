//! A private server: its own data directory and socket, ended by its id.

use super::plugin::Plugin;
use super::tree::{Configuration, Tree, home};
use inkstone_testkit::build::Result;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What it logs into, in its folder.
pub const LOG: &str = "error.log";
/// Scripts that make the system tables, in the order of `mariadb-install-db`.
const BOOTSTRAP: [&str; 6] = [
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
    "fill_help_tables.sql",
    "maria_add_gis_sp_bootstrap.sql",
    "mysql_sys_schema.sql",
];

/// How long a server may take to answer: recovery is part of it.
const START: Duration = Duration::from_secs(180);

/// A server with a data directory of its own.
pub struct Server {
    tree: Tree,
    folder: PathBuf,
    socket: PathBuf,
    options: Vec<String>,
    plugin: Option<PathBuf>,
    environment: Vec<(&'static str, String)>,
    /// The server's process, if this program started it. Locked, so that one thread can kill it
    /// while others work with it.
    child: Mutex<Option<Child>>,
}

impl Server {
    /// A server whose files are in `folder`.
    pub fn new(tree: &Tree, folder: &Path) -> Self {
        Self {
            tree: tree.clone(),
            folder: folder.to_owned(),
            socket: socket(folder),
            options: Vec::new(),
            plugin: None,
            environment: Vec::new(),
            child: Mutex::new(None),
        }
    }

    /// A server in a new folder of its own under `target/mariadb`, which is removed by
    /// [`Server::remove`].
    pub fn temporary(tree: &Tree, name: &str) -> Self {
        let folder = run_folder(name);
        let _ = std::fs::remove_dir_all(&folder);
        Self::new(tree, &folder)
    }

    /// Another server, in `folder`, with the plugin of this one and no options.
    pub fn beside(&self, folder: &Path) -> Self {
        let mut other = Self::new(&self.tree, folder);
        other.plugin = self.plugin.clone();
        other.environment = self.environment.clone();
        other
    }

    /// Loads the plugin at the next start.
    pub fn with_plugin(mut self, plugin: &Plugin) -> Self {
        self.plugin = Some(plugin.library.clone());
        self.environment = plugin.environment.clone();
        self
    }

    /// What the next start is configured by.
    pub fn configure(&mut self, configuration: Configuration) {
        self.tree.configuration = configuration;
    }

    /// An environment variable of the next start. What is to be loaded first is loaded behind what
    /// is already.
    pub fn with_environment(mut self, name: &'static str, value: &str) -> Self {
        match self
            .environment
            .iter_mut()
            .find(|(other, _)| *other == name)
        {
            Some((_, values)) => *values += &format!(":{value}"),
            None => self.environment.push((name, value.to_owned())),
        }
        self
    }

    /// Options of the next start, in addition to those of before.
    pub fn with_options<S: Into<String>>(mut self, options: impl IntoIterator<Item = S>) -> Self {
        self.options.extend(options.into_iter().map(S::into));
        self
    }

    /// Sets an option of the next start, which it may have already.
    pub fn set_option(&mut self, name: &str, value: &str) {
        let start = format!("--{name}=");
        self.options.retain(|option| !option.starts_with(&start));
        self.options.push(start + value);
    }

    /// The folder that holds everything of this server.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// What the server writes about itself.
    pub fn log(&self) -> PathBuf {
        self.folder.join(LOG)
    }

    /// The socket it listens on.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The tree it runs from.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_folders(&self) -> Result<()> {
        for folder in [
            self.data().join("mysql"),
            self.data().join("test"),
            self.folder.join("tmp"),
        ] {
            std::fs::create_dir_all(&folder)
                .map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
        }
        Ok(())
    }

    /// The server's command, with what it needs to run from an unpacked tree.
    fn command(&self) -> Command {
        // A private server ends with the command that started it, whatever happens to that.
        let mut command = self.tree.command(Path::new("setpriv"));
        command
            .args(["--pdeathsig", "KILL"])
            .arg(self.tree.server());
        self.equip(&mut command);
        command
    }

    /// Arguments and environment that every server has.
    fn equip(&self, command: &mut Command) {
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let share = self.tree.share();
        let folder = self.folder.display();
        let data = self.data();
        command.args([
            self.tree.defaults(),
            format!("--basedir={}", self.tree.usr().display()),
            format!("--lc-messages-dir={}", share.display()),
            format!("--character-sets-dir={}/charsets", share.display()),
            format!("--datadir={}", data.display()),
            format!("--tmpdir={folder}/tmp"),
            "--innodb-fast-shutdown=1".to_owned(),
        ]);
        if is_root() {
            command.arg("--user=root");
        }
    }

    fn bootstrap(&self) -> Result<()> {
        let made = self.folder.join("bootstrapped");
        if made.exists() {
            return Ok(());
        }
        let _ = std::fs::remove_dir_all(self.data());
        self.make_folders()?;
        let share = self.tree.share();
        let mut sql = "use mysql;\nSET @auth_root_socket=NULL;\n".to_owned();
        for script in BOOTSTRAP {
            let path = share.join(script);
            sql += &std::fs::read_to_string(&path)
                .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        }
        let input = self.folder.join("bootstrap.sql");
        std::fs::write(&input, sql)
            .map_err(|error| format!("{} cannot be written: {error}", input.display()))?;
        let mut command = self.command();
        command.arg("--bootstrap");
        // The size of InnoDB's pages is decided here.
        let of_innodb = |option: &&String| option.starts_with("--innodb");
        command.args(self.options.iter().filter(of_innodb));
        command.stdin(open(&input)?).stdout(Stdio::null());
        command.stderr(self.append_log()?);
        let status = command
            .status()
            .map_err(|error| cannot_start(&command, error))?;
        if status.success() {
            std::fs::write(&made, &self.tree.version)
                .map_err(|error| format!("{} cannot be written: {error}", made.display()))
        } else {
            Err(format!(
                "the system tables cannot be made:\n{}",
                self.end_of_log()
            ))
        }
    }

    fn append_log(&self) -> Result<std::fs::File> {
        let path = self.log();
        let file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&path);
        file.map_err(|error| format!("{} cannot be written: {error}", path.display()))
    }

    /// Starts it, and waits until it answers. Makes the data directory if there is none.
    pub fn start(&mut self) -> Result<()> {
        self.bootstrap()?;
        let command = self.command();
        self.spawn(command)?;
        self.wait_ready()
    }

    /// Starts it so that it goes on when this program has ended.
    pub fn start_detached(&mut self) -> Result<()> {
        use std::os::unix::process::CommandExt;
        self.bootstrap()?;
        let mut command = self.tree.command(&self.tree.server());
        self.equip(&mut command);
        command.process_group(0);
        self.spawn(command)?;
        self.wait_ready()
    }

    /// Starts it without waiting.
    fn spawn(&mut self, mut command: Command) -> Result<()> {
        command.args([
            format!("--socket={}", self.socket.display()),
            format!("--pid-file={}/server.pid", self.folder.display()),
            "--skip-name-resolve".to_owned(),
        ]);
        if !self
            .options
            .iter()
            .any(|option| option.starts_with("--port"))
        {
            command.arg("--skip-networking");
        }
        if let Some(plugin) = &self.plugin {
            let folder = plugin.parent().unwrap_or(Path::new("."));
            command.args([
                "--plugin-maturity=experimental".to_owned(),
                format!("--plugin-dir={}", folder.display()),
                "--plugin-load-add=ha_inkstone.so".to_owned(),
            ]);
        }
        command.args(&self.options);
        command.stdin(Stdio::null());
        command
            .stdout(self.append_log()?)
            .stderr(self.append_log()?);
        let child = command
            .spawn()
            .map_err(|error| cannot_start(&command, error))?;
        *self.child() = Some(child);
        Ok(())
    }

    fn wait_ready(&mut self) -> Result<()> {
        let began = Instant::now();
        loop {
            if self.answers() {
                return Ok(());
            }
            if let Some(status) = self.exited() {
                let log = self.end_of_log();
                return Err(format!(
                    "the server ended ({status}) before it answered:\n{log}"
                ));
            }
            if began.elapsed() > START {
                self.kill();
                let log = self.end_of_log();
                return Err(format!(
                    "the server does not answer after {START:?}:\n{log}"
                ));
            }
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// True if a server listens on the socket and answers.
    pub fn answers(&self) -> bool {
        self.socket.exists() && self.sql("DO 1").is_ok()
    }

    /// The id of the server's process.
    pub fn process(&self) -> Result<u32> {
        let child = self.child();
        Ok(child.as_ref().ok_or("the server does not run")?.id())
    }

    /// How the server ended, if it has.
    pub fn exited(&self) -> Option<std::process::ExitStatus> {
        self.child().as_mut()?.try_wait().ok().flatten()
    }

    /// Kills it: SIGKILL, by its id.
    pub fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            let _ = child.kill();
            let _ = child.wait();
            let _ = std::fs::remove_file(&self.socket);
        }
    }

    /// Ends it in order.
    pub fn stop(&self) -> Result<()> {
        self.sql("SHUTDOWN")?;
        let began = Instant::now();
        loop {
            let ended = match &mut *self.child() {
                Some(child) => child.try_wait().ok().flatten().is_some(),
                None => !self.folder.join("server.pid").exists(),
            };
            if ended {
                *self.child() = None;
                return Ok(());
            }
            if began.elapsed() > START {
                let log = self.end_of_log();
                self.kill();
                return Err(format!("the server has not ended after {START:?}:\n{log}"));
            }
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Lets the server go on when this program has ended.
    pub fn detach(self) {
        *self.child() = None;
    }

    /// Ends it, and removes everything of it.
    pub fn remove(self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }

    /// The client program, connected to this server.
    pub fn client(&self) -> Command {
        self.client_program("mariadb")
    }

    /// Any client program, connected to this server.
    pub fn client_program(&self, name: &str) -> Command {
        let mut command = self.tree.command(&self.tree.program(name));
        command.args(["--no-defaults", "--user=root"]);
        command.arg(format!("--socket={}", self.socket.display()));
        command
    }

    /// Runs statements; gives what they print: values separated by tabs, no headings.
    pub fn sql(&self, statements: &str) -> Result<String> {
        let mut client = self.client();
        client.args([
            "--batch",
            "--skip-column-names",
            "--database=test",
            "--execute",
            statements,
        ]);
        super::apt::output(&mut client)
    }

    /// The client program with a script to run, `DELIMITER` and all.
    pub fn client_for(&self, script: &str) -> Result<Command> {
        let path = self.folder.join("script.sql");
        std::fs::write(&path, script)
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        let mut client = self.client();
        client.stdin(open(&path)?);
        Ok(client)
    }

    /// Runs a script.
    pub fn script(&self, text: &str) -> Result<()> {
        super::apt::output(&mut self.client_for(text)?).map(drop)
    }

    /// The file and the condition of an assertion of InnoDB that the server has failed since it was
    /// started last.
    pub fn failed_assertion(&self) -> Option<(String, String)> {
        let text = std::fs::read(self.log()).unwrap_or_default();
        failed_assertion(&String::from_utf8_lossy(&text))
    }

    /// The last lines of the error log.
    pub fn end_of_log(&self) -> String {
        let text = std::fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What an error log says of it, behind the last start.
fn failed_assertion(log: &str) -> Option<(String, String)> {
    let run = log
        .rsplit_once(": ready for connections")
        .map_or(log, |(_, run)| run);
    let (_, failure) = run.split_once("InnoDB: Assertion failure in file ")?;
    let (file, rest) = failure.split_once(" line ")?;
    let (_, condition) = rest.split_once("InnoDB: Failing assertion: ")?;
    Some((file.to_owned(), condition.lines().next()?.to_owned()))
}

/// A folder of this process's own.
pub fn run_folder(name: &str) -> PathBuf {
    home().join(format!("run-{name}-{}", std::process::id()))
}

/// A socket's path is limited to 107 bytes: below a deep folder it goes to the temporary folder.
fn socket(folder: &Path) -> PathBuf {
    let near = folder.join("socket");
    if near.as_os_str().len() < 100 {
        return near;
    }
    let mut hash = std::hash::DefaultHasher::new();
    std::hash::Hash::hash(folder, &mut hash);
    let name = format!("inkstone-{:016x}.socket", std::hash::Hasher::finish(&hash));
    std::env::temp_dir().join(name)
}

/// The server refuses to run as root unless told to.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

fn open(path: &Path) -> Result<std::fs::File> {
    std::fs::File::open(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

fn cannot_start(command: &Command, error: std::io::Error) -> String {
    let program = command.get_program().to_string_lossy();
    format!("{program} cannot be started: {error}")
}

#[cfg(test)]
mod tests {
    use super::failed_assertion;

    #[test]
    fn assertions_of_the_last_run() {
        let ready = "mariadbd: ready for connections.\n";
        let failed = "2026-11-23 00:13:19 0x7f0e  InnoDB: Assertion failure in file ./row/row0ins.cc line 223\n\
                      InnoDB: Failing assertion: a == 0\nInnoDB: We intentionally generate a memory trap.\n";
        let log = format!("{ready}{failed}");
        let expected = ("./row/row0ins.cc".to_owned(), "a == 0".to_owned());
        assert_eq!(failed_assertion(&log), Some(expected));
        assert_eq!(failed_assertion(&format!("{log}{ready}")), None);
        assert_eq!(failed_assertion(ready), None);
    }
}
