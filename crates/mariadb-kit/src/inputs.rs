//! The files that `--smoke` and `--experiments` run for both engines.

use inkstone_testkit::build::{Result, root};

/// A file that both engines are given.
pub struct Input {
    pub name: String,
    pub text: String,
}

/// The files of `mariadb/FOLDER` whose name begins with `filter` and ends with `ending`, in the
/// order of their names; at least one.
pub fn inputs(folder: &str, filter: Option<&str>, ending: &str) -> Result<Vec<Input>> {
    let folder = root().join("mariadb").join(folder);
    let entries = std::fs::read_dir(&folder)
        .map_err(|error| format!("{} cannot be read: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(filter.unwrap_or_default()) && name.ends_with(ending))
        .collect();
    names.sort();
    if names.is_empty() {
        return Err(format!("no file in {} has such a name", folder.display()));
    }
    let read = |name: String| {
        let path = folder.join(&name);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        Ok(Input { name, text })
    };
    names.into_iter().map(read).collect()
}
