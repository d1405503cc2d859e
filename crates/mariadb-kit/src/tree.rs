//! An unpacked server: where its programs, libraries and headers are, and how they are run.

use inkstone_testkit::build::{Result, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where everything of `cargo xtask mariadb` lies.
pub fn home() -> PathBuf {
    root().join("target/mariadb")
}

/// What decides a server's defaults, character sets above all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Configuration {
    /// The file that Debian's package brings: utf8mb4
    #[default]
    Debian,
    /// What is compiled in: latin1
    Plain,
}

/// One unpacked version: `root` holds what the binary packages hold, `source` the headers that only
/// the source package has, `generated` the one header that a build of the server would make.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Debian's version without its epoch: `10.11.18-0+deb12u1`.
    pub version: String,
    folder: PathBuf,
    /// The folder of libraries: `usr/lib/x86_64-linux-gnu`, or what it is on this machine.
    libraries: PathBuf,
    /// How servers that run from it are configured.
    pub configuration: Configuration,
}

impl Tree {
    /// Opens what was unpacked into `folder`, wholly.
    pub fn open(folder: &Path) -> Result<Self> {
        let version = std::fs::read_to_string(folder.join("version"))
            .map_err(|error| format!("{} was not unpacked wholly: {error}", folder.display()))?;
        Self::unfinished(folder, version.trim())
    }

    /// What is being unpacked into `folder`; [`Tree::finish`] says when it is whole.
    pub fn unfinished(folder: &Path, version: &str) -> Result<Self> {
        let lib = folder.join("root/usr/lib");
        let entries = std::fs::read_dir(&lib)
            .map_err(|error| format!("{} cannot be read: {error}", lib.display()))?;
        let libraries = entries
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.join("libmysqlservices.a").exists())
            .ok_or_else(|| format!("there is no libmysqlservices.a below {}", lib.display()))?;
        Ok(Self {
            version: version.to_owned(),
            folder: folder.to_owned(),
            libraries,
            configuration: Configuration::default(),
        })
    }

    /// From now on [`Tree::open`] takes it.
    pub fn finish(&self) -> Result<()> {
        std::fs::write(self.folder.join("version"), &self.version)
            .map_err(|error| format!("{} cannot be written: {error}", self.folder.display()))
    }

    /// What stands below `/usr` where the packages are installed.
    pub fn usr(&self) -> PathBuf {
        self.folder.join("root/usr")
    }

    /// The same, with servers of this configuration.
    pub fn configured(mut self, configuration: Configuration) -> Self {
        self.configuration = configuration;
        self
    }

    /// The first option of every server.
    pub fn defaults(&self) -> String {
        match self.configuration {
            Configuration::Plain => "--no-defaults".to_owned(),
            Configuration::Debian => {
                let file = "root/etc/mysql/mariadb.conf.d/50-server.cnf";
                format!("--defaults-file={}", self.folder.join(file).display())
            }
        }
    }

    /// The server.
    pub fn server(&self) -> PathBuf {
        self.usr().join("sbin/mariadbd")
    }

    /// A client program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.usr().join("bin").join(name)
    }

    /// Messages, character sets, scripts, the test suite.
    pub fn share(&self) -> PathBuf {
        self.usr().join("share/mysql")
    }

    /// Folder of the server's own plugins.
    pub fn plugins(&self) -> PathBuf {
        self.usr().join("lib/mysql/plugin")
    }

    /// The static library of service pointers that each plugin is linked with.
    pub fn services(&self) -> PathBuf {
        self.libraries.join("libmysqlservices.a")
    }

    /// Include folders, in the order in which they must be searched.
    pub fn include_folders(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.usr().join("include/mariadb/server")];
        let source = self.folder.join("source");
        let of_source = [
            "include",
            "sql",
            "wsrep-lib/include",
            "wsrep-lib/wsrep-API/v26",
            "tpool",
        ];
        folders.extend(of_source.map(|folder| source.join(folder)));
        folders.push(self.folder.join("generated"));
        folders
    }

    /// What the dynamic linker must search, for libraries that the machine has not installed.
    pub fn library_path(&self) -> String {
        let mut path = format!("{}", self.libraries.display());
        if let Some(name) = self.libraries.file_name() {
            let old = self.folder.join("root/lib").join(name);
            path = format!("{path}:{}", old.display());
        }
        match std::env::var("LD_LIBRARY_PATH") {
            Ok(rest) if !rest.is_empty() => format!("{path}:{rest}"),
            _ => path,
        }
    }

    /// Perl's module folders of the tree (there are some where the machine has `perl-base` only).
    pub fn perl_path(&self) -> String {
        let share = self.usr().join("share");
        let roots = [share.join("perl"), self.libraries.join("perl")];
        let mut folders = vec![share.join("perl5").display().to_string()];
        for root in roots {
            let versions = std::fs::read_dir(root).into_iter().flatten().flatten();
            folders.extend(versions.map(|version| version.path().display().to_string()));
        }
        folders.join(":")
    }

    /// A command that finds the tree's libraries.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", self.library_path())
            .env_remove("MYSQL_HOME")
            .env_remove("MYSQL_UNIX_PORT");
        command
    }
}
