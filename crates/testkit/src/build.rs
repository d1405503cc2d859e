//! Building and running programs of the workspace with switches that ordinary builds do not have.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What goes wrong before a program runs, as text for people.
pub type Result<T> = std::result::Result<T, String>;

/// A way to build the workspace: its own compiler switches, its own folder under `target/`.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The folder under `target/`.
    pub folder: &'static str,
    /// The cargo profile.
    pub profile: &'static str,
    /// `--cfg` switches: `inkstone_sim` lets every thread, lock and clock of the engine go through
    /// a seeded scheduler, `inkstone_mutants` compiles the deliberate bugs in.
    pub cfgs: &'static [&'static str],
}

/// The engine as it is shipped, and measured.
pub const RELEASE: Build = Build {
    folder: "",
    profile: "release",
    cfgs: &[],
};

/// The engine as it is simulated, with deliberate bugs to be switched on. Threads that are in no
/// simulation (of `crash`, `histories`, `faults`) are the operating system's here, too: the seam
/// hands them on to the ordinary locks. So one build serves all of these programs.
pub const SIMULATED: Build = Build {
    folder: "sim",
    profile: "sim",
    cfgs: &["inkstone_sim", "inkstone_mutants"],
};

/// The engine of a MariaDB plugin with deliberate bugs to be switched on.
pub const PLUGIN_WITH_MUTANTS: Build = Build {
    folder: "plugin-mutants",
    profile: "release",
    cfgs: &["inkstone_mutants"],
};

impl Build {
    /// A cargo command with the switches of this build.
    pub fn cargo(&self, subcommand: &str) -> Command {
        let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        for cfg in self.cfgs {
            flags.push_str(&format!(" --cfg {cfg}"));
        }
        let mut command = Command::new(std::env::var("CARGO").unwrap_or("cargo".to_owned()));
        command
            .current_dir(root())
            .env("RUSTFLAGS", flags.trim())
            .arg(subcommand)
            .args(["--quiet", "--profile", self.profile, "--target-dir"])
            .arg(root().join("target").join(self.folder));
        command
    }

    /// Builds a program of a package; gives its path.
    pub fn build(&self, package: &str, program: &str) -> Result<PathBuf> {
        let mut command = self.cargo("build");
        command.args(["-p", package, "--bin", program]);
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(_) => return Err(format!("{program} cannot be built")),
            Err(error) => return Err(format!("{command:?} cannot be started: {error}")),
        }
        let name = format!("{program}{}", std::env::consts::EXE_SUFFIX);
        let target = root().join("target").join(self.folder);
        Ok(target.join(self.profile).join(name))
    }

    /// Builds a program of `inkstone-testkit` and runs it; gives its exit code.
    pub fn run_testkit(&self, program: &str, arguments: &[String]) -> Result<ExitCode> {
        self.run("inkstone-testkit", program, arguments)
    }

    /// Builds a program of a package and runs it; gives its exit code.
    pub fn run(&self, package: &str, program: &str, arguments: &[String]) -> Result<ExitCode> {
        let mut command = self.cargo("run");
        command
            .args(["-p", package, "--bin", program, "--"])
            .args(arguments);
        status(&mut command)
    }
}

/// The workspace's folder.
pub fn root() -> PathBuf {
    let testkit = Path::new(env!("CARGO_MANIFEST_DIR"));
    testkit.ancestors().nth(2).unwrap_or(testkit).to_owned()
}

/// Makes a folder that is there and empty.
pub fn empty_folder(folder: &Path) -> Result<()> {
    let error = |error| format!("{}: {error}", folder.display());
    if folder.is_dir() {
        std::fs::remove_dir_all(folder).map_err(error)?;
    }
    std::fs::create_dir_all(folder).map_err(error)
}

/// Runs a command to its end; gives its exit code.
pub fn status(command: &mut Command) -> Result<ExitCode> {
    let status = command
        .status()
        .map_err(|error| format!("{command:?} cannot be started: {error}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(101)))
}
