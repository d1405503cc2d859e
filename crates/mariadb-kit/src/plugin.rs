//! `ha_inkstone.so`: every `.cc` in `mariadb/` and its folders, and the engine as a static library.

use super::sanitizer::{self, Sanitizer};
use super::symbols;
use super::tree::{Tree, home};
use inkstone_testkit::build::{PLUGIN_WITH_MUTANTS, Result, root};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Flags under which the class layouts are those of the server (`symbols` checks them).
/// `DBUG_OFF` is part of the layout of `THD`.
const FLAGS: [&str; 13] = [
    "-std=gnu++11",
    "-O2",
    "-g1",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-DHAVE_CONFIG_H",
    "-DMYSQL_DYNAMIC_PLUGIN",
    "-DMYSQL_SERVER=1",
    "-DNDEBUG",
    "-DDBUG_OFF",
    "-D_FILE_OFFSET_BITS=64",
];

/// The header that every file of the handler begins with: the server's own headers, mostly.
const COMMON: &str = "common.h";

/// The plugin, and what a server needs to load it.
pub struct Plugin {
    /// The file.
    pub library: PathBuf,
    /// Environment of the server.
    pub environment: Vec<(&'static str, String)>,
    sanitized: bool,
    /// Where the objects of the handler's files are, in the folders of the files.
    objects: PathBuf,
}

impl Plugin {
    /// Builds another library beside it, from a file and objects of the handler's files.
    pub fn build_probe(
        &self,
        tree: &Tree,
        source: &Path,
        of_handler: &[&str],
        name: &str,
    ) -> Result<()> {
        let library = self.folder().join(name);
        let objects: Vec<PathBuf> = of_handler
            .iter()
            .map(|file| self.objects.join(file).with_extension("o"))
            .collect();
        let mut needed = objects.clone();
        needed.push(source.to_owned());
        if !is_stale(&library, &needed) {
            return Ok(());
        }
        let mut command = compiler(tree, self.is_sanitized());
        if self.is_sanitized() {
            command.args(sanitizer::LINK);
        }
        command
            .arg("-I")
            .arg(&self.objects)
            .args(["-include", COMMON]);
        command.arg("-shared").arg("-o").arg(&library).arg(source);
        command.args(objects).arg(tree.services());
        compile(vec![(source.to_owned(), command)])
    }

    /// Where servers find it.
    pub fn folder(&self) -> &Path {
        self.library.parent().unwrap_or(Path::new("."))
    }

    /// True if sanitizers watch it.
    pub fn is_sanitized(&self) -> bool {
        self.sanitized
    }
}

/// Builds what is out of date. `mutant`: with this deliberate bug switched on in every server.
pub fn build(tree: &Tree, sanitizer: Option<&Sanitizer>, mutant: Option<&str>) -> Result<Plugin> {
    let engine = match mutant {
        None => build_engine()?,
        Some(_) => build_engine_with_mutants()?,
    };
    let handler = root().join("mariadb");
    let sanitized = sanitizer.is_some();
    let of_handler = home().join(if sanitized {
        "plugin-sanitized"
    } else {
        "plugin"
    });
    let objects = of_handler.join(objects_folder(tree, sanitized));
    // The handler has no mutants.
    let folder = match mutant {
        None => of_handler,
        Some(_) => home().join("plugin-mutants"),
    };
    make_folder(&folder)?;
    let mut inputs = compile_handler(tree, sanitized, &handler, &objects)?;
    let library = folder.join("ha_inkstone.so");
    let exports = handler.join("exports.map");
    inputs.push(engine);
    inputs.push(tree.services());
    let mut needed = inputs.clone();
    needed.push(exports.clone());
    if is_stale(&library, &needed) {
        link(&inputs, sanitized, &exports, &library)?;
        symbols::check_undefined(tree, &library, sanitizer.map(Sanitizer::runtime))
            .and_then(|()| symbols::check_layouts(tree, compiler(tree, sanitized), &objects))
            .inspect_err(|_| drop(std::fs::remove_file(&library)))?;
        eprintln!(
            "{} is built for MariaDB {}",
            library.display(),
            tree.version
        );
    }
    Ok(Plugin {
        library,
        environment: match mutant {
            None => sanitizer.map_or(Vec::new(), Sanitizer::environment),
            Some(name) => vec![("INKSTONE_MUTANT", name.to_owned())],
        },
        sanitized,
        objects,
    })
}

/// Compiles every file of the handler that is out of date; gives the objects.
fn compile_handler(
    tree: &Tree,
    sanitized: bool,
    handler: &Path,
    objects: &Path,
) -> Result<Vec<PathBuf>> {
    let sources = sources(handler)?;
    for folder in folders_of(&sources) {
        make_folder(&objects.join(folder))?;
    }
    precompile(compiler(tree, sanitized), &handler.join(COMMON), objects)?;
    let mut made = Vec::new();
    let mut compiling = Vec::new();
    for source in &sources {
        let object = objects.join(source).with_extension("o");
        let source = &handler.join(source);
        if is_stale(&object, &dependencies(&object)) {
            let mut command = compiler(tree, sanitized);
            // The precompiled header stands there under the header's name.
            command.arg("-I").arg(objects).args(["-include", COMMON]);
            command.arg("-MMD").arg("-c").arg(source);
            command.arg("-o").arg(&object);
            compiling.push((source.clone(), command));
        }
        made.push(object);
    }
    compile(compiling)?;
    Ok(made)
}

/// A folder for each version and each set of flags: an object of other flags is never taken.
fn objects_folder(tree: &Tree, sanitized: bool) -> String {
    let mut hash = std::hash::DefaultHasher::new();
    std::hash::Hash::hash(&format!("{:?}", compiler(tree, sanitized)), &mut hash);
    let hash = std::hash::Hasher::finish(&hash);
    format!("objects-{}-{hash:016x}", tree.version)
}

/// The server's headers take ten times as long as the handler: they are compiled once.
fn precompile(mut compiler: Command, header: &Path, objects: &Path) -> Result<()> {
    let precompiled = objects.join(COMMON).with_extension("h.gch");
    if !is_stale(&precompiled, &dependencies(&precompiled)) {
        return Ok(());
    }
    compiler.args(["-x", "c++-header", "-MMD", "-MF"]);
    compiler.arg(precompiled.with_extension("d"));
    compiler.arg(header).arg("-o").arg(&precompiled);
    compile(vec![(header.to_owned(), compiler)])
}

/// A cargo profile in place of the one of what is shipped, which takes long to build.
const PROFILE_VARIABLE: &str = "INKSTONE_PLUGIN_PROFILE";

fn build_engine() -> Result<PathBuf> {
    let profile = std::env::var(PROFILE_VARIABLE).unwrap_or("plugin".to_owned());
    let cargo = std::env::var("CARGO").unwrap_or("cargo".to_owned());
    let target = root().join("target");
    let mut command = Command::new(cargo);
    command
        .current_dir(root())
        .args([
            "build",
            "--quiet",
            "--profile",
            &profile,
            "-p",
            "inkstone-capi",
        ])
        .arg("--target-dir")
        .arg(&target);
    match command.status() {
        Ok(status) if status.success() => Ok(target.join(profile).join("libinkstone_capi.a")),
        Ok(_) => Err("the engine cannot be built (see above)".to_owned()),
        Err(error) => Err(format!("cargo cannot be started: {error}")),
    }
}

fn build_engine_with_mutants() -> Result<PathBuf> {
    let build = PLUGIN_WITH_MUTANTS;
    let mut command = build.cargo("build");
    command.args(["-p", "inkstone-capi"]);
    match command.status() {
        Ok(status) if status.success() => {
            let target = root().join("target").join(build.folder);
            Ok(target.join(build.profile).join("libinkstone_capi.a"))
        }
        Ok(_) => Err("the engine with its mutants cannot be built (see above)".to_owned()),
        Err(error) => Err(format!("cargo cannot be started: {error}")),
    }
}

/// The files below the handler's folder with such endings.
fn files(handler: &Path, endings: &[&str]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let path = handler.join(&folder);
        let entries = std::fs::read_dir(&path)
            .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        for entry in entries.flatten() {
            let name = folder.join(entry.file_name());
            let ending = name.extension().unwrap_or_default();
            if entry.path().is_dir() {
                folders.push(name);
            } else if endings.iter().any(|wanted| ending == *wanted) {
                files.push(name);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn sources(handler: &Path) -> Result<Vec<PathBuf>> {
    let sources = files(handler, &["cc"])?;
    if sources.is_empty() {
        Err(format!("there is no .cc file in {}", handler.display()))
    } else {
        Ok(sources)
    }
}

fn folders_of(sources: &[PathBuf]) -> BTreeSet<&Path> {
    sources
        .iter()
        .filter_map(|source| source.parent())
        .collect()
}

fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .map_err(|error| format!("{} cannot be made: {error}", folder.display()))
}

/// The C++ compiler.
pub fn cxx() -> PathBuf {
    std::env::var_os("CXX").unwrap_or("g++".into()).into()
}

/// The C++ compiler as the handler needs it.
pub fn compiler(tree: &Tree, sanitized: bool) -> Command {
    let mut command = Command::new(cxx());
    command.args(FLAGS);
    if sanitized {
        command.args(sanitizer::COMPILE);
    }
    // Warnings of the server's own headers cannot be fixed here.
    for folder in tree.include_folders() {
        command.arg("-isystem").arg(folder);
    }
    command
        .arg("-I")
        .arg(root().join("crates/capi/include"))
        .arg("-I")
        .arg(root().join("mariadb"));
    command
}

/// Compiles, as many files at a time as there are processors.
fn compile(commands: Vec<(PathBuf, Command)>) -> Result<()> {
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let mut running = Vec::new();
    for (source, mut command) in commands {
        if running.len() == at_once {
            wait(running.remove(0))?;
        }
        eprintln!("compiling {}", source.display());
        let child = command.spawn().map_err(|error| {
            format!("the C++ compiler cannot be started: {error} (CXX names it)")
        })?;
        running.push((source, child));
    }
    running.into_iter().try_for_each(wait)
}

fn wait((source, mut child): (PathBuf, std::process::Child)) -> Result<()> {
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!(
            "{} cannot be compiled (see above)",
            source.display()
        )),
    }
}

fn link(inputs: &[PathBuf], sanitized: bool, exports: &Path, plugin: &Path) -> Result<()> {
    let mut command = Command::new(cxx());
    if sanitized {
        command.args(sanitizer::LINK);
    }
    command
        .arg("-shared")
        .arg("-o")
        .arg(plugin)
        .args(inputs)
        .args(["-Wl,-z,relro,-z,now", "-Wl,--gc-sections"])
        .arg(format!("-Wl,--version-script={}", exports.display()))
        .args(["-lpthread", "-ldl", "-lm"]);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("the plugin cannot be linked (see above)".to_owned()),
        Err(error) => Err(format!("the linker cannot be started: {error}")),
    }
}

/// What an object was made from, as the compiler wrote it down.
fn dependencies(object: &Path) -> Vec<PathBuf> {
    let Ok(rule) = std::fs::read_to_string(object.with_extension("d")) else {
        return Vec::new();
    };
    let names = rule.replace("\\\n", " ");
    let names = names.split_once(':').map_or("", |(_, names)| names);
    names.split_whitespace().map(PathBuf::from).collect()
}

/// True if `made` is not there, its inputs are not known, or one of them is newer or gone.
fn is_stale(made: &Path, inputs: &[PathBuf]) -> bool {
    let Some(made) = modified(made) else {
        return true;
    };
    inputs.is_empty()
        || inputs
            .iter()
            .any(|input| modified(input).is_none_or(|input| input > made))
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Folders of the handler, each of which may use those before it.
    const ORDER: [&str; 6] = ["common.h", "codec", "server", "table", "handler", "ddl"];

    /// Where a name among the handler's files stands in the order; `None`: a header of the server.
    fn place(name: &str) -> Option<usize> {
        let first = name.split('/').next()?;
        ORDER.iter().position(|folder| *folder == first)
    }

    #[test]
    fn folders_use_only_those_before_them() {
        let handler = root().join("mariadb");
        let mut checked = 0;
        for source in files(&handler, &["cc", "h"]).unwrap() {
            let name = source.to_str().unwrap();
            let text = std::fs::read_to_string(handler.join(&source)).unwrap();
            for line in text.lines() {
                let Some(included) = line.strip_prefix("#include \"") else {
                    continue;
                };
                let Some(used) = place(included.trim_end_matches('"')) else {
                    continue;
                };
                // What puts the folders together may use them all.
                let here = place(name).unwrap_or(ORDER.len());
                assert!(
                    used <= here,
                    "{name} includes {included}, of a later folder"
                );
                checked += 1;
            }
        }
        assert!(checked > 50, "{checked} includes are no handler's");
    }
}
