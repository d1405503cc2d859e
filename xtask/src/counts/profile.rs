//! What callgrind wrote, and what the disassembly says of it.

use inkstone_testkit::build::{Result, root};
use std::collections::{BTreeMap, HashSet};
use std::process::Command;

/// How often each instruction ran, by object file and address.
#[derive(Debug, Default)]
pub struct Profile {
    pub executed: BTreeMap<String, BTreeMap<u64, u64>>,
}

impl Profile {
    /// Reads a profile with uncompressed names and positions. Costs of calls, which include those
    /// of the function that was called, are passed by.
    pub fn parse(text: &str) -> Result<Self> {
        let mut profile = Self::default();
        let (mut object, mut after_call) = (String::new(), false);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("ob=") {
                object = name.to_owned();
            } else if line.starts_with("calls=") {
                after_call = true;
            } else if line.starts_with("0x") {
                if std::mem::take(&mut after_call) {
                    continue;
                }
                let mut fields = line.split(' ');
                let address = fields.next().and_then(|address| {
                    u64::from_str_radix(address.trim_start_matches("0x"), 16).ok()
                });
                let cost = fields.nth(1).and_then(|cost| cost.parse::<u64>().ok());
                let (Some(address), Some(cost)) = (address, cost) else {
                    return Err(format!("callgrind wrote a line of another form: {line}"));
                };
                let addresses = profile.executed.entry(object.clone()).or_default();
                *addresses.entry(address).or_default() += cost;
            }
        }
        Ok(profile)
    }

    /// How many instructions ran.
    pub fn instructions(&self) -> u64 {
        self.executed
            .values()
            .flat_map(|addresses| addresses.values())
            .sum()
    }
}

/// A program or library, disassembled.
#[derive(Debug)]
pub struct Object {
    path: String,
    atomic: HashSet<u64>,
}

impl Object {
    /// Finds the atomic instructions of an object file.
    pub fn disassemble(path: &str) -> Result<Self> {
        let text = if std::path::Path::new(path).is_file() {
            output(Command::new("objdump").args(["-d", "--no-show-raw-insn", path]))?
        } else {
            // What the kernel maps (the clock's page) is no file.
            String::new()
        };
        let atomic = text.lines().filter_map(atomic_at).collect();
        Ok(Self {
            path: path.to_owned(),
            atomic,
        })
    }

    pub fn is_atomic(&self, address: u64) -> bool {
        self.atomic.contains(&address)
    }

    /// The function and the line of the source at each address: the innermost that is the engine's
    /// own, if one is, as an atomic of `std` is inlined there.
    pub fn places(&self, addresses: impl Iterator<Item = u64>) -> Result<Vec<String>> {
        let addresses: Vec<_> = addresses.map(|address| format!("{address:#x}")).collect();
        if addresses.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = Command::new("addr2line");
        command.args(["-a", "-f", "-i", "-C", "-e", &self.path]);
        let text = output(command.args(&addresses))?;
        let mut places: Vec<Vec<(&str, &str)>> = Vec::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.starts_with("0x") {
                places.push(Vec::new());
            } else if let (Some(frames), Some(at)) = (places.last_mut(), lines.next()) {
                frames.push((line, at));
            }
        }
        Ok(places.iter().map(|frames| self.place(frames)).collect())
    }

    fn place(&self, frames: &[(&str, &str)]) -> String {
        let root = root().display().to_string();
        let own = |(_, at): &&(&str, &str)| {
            let at = at.strip_prefix(&root).unwrap_or(at);
            at.trim_start_matches('/').starts_with("crates/")
                // The seam's own lines say nothing of the caller.
                && !at.contains("/crates/sync/src/")
        };
        match frames.iter().find(own).or(frames.first()) {
            Some((function, at)) if *function != "??" => {
                let at = at.strip_prefix(&root).unwrap_or(at).trim_start_matches('/');
                let at = at.split(" (").next().unwrap_or(at);
                format!("{at} {function}")
            }
            _ => format!("in {}", self.path),
        }
    }
}

/// The address of an atomic read-modify-write, if the line of a disassembly is one.
fn atomic_at(line: &str) -> Option<u64> {
    let (address, instruction) = line.trim_start().split_once(':')?;
    let instruction = instruction.trim();
    let exchanges = instruction.starts_with("xchg ") && instruction.contains('(');
    if !exchanges && !instruction.starts_with("lock ") {
        return None;
    }
    u64::from_str_radix(address, 16).ok()
}

fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{name} cannot be started ({error}): is it installed?"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name} failed: {said}"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_calls_are_passed_by() {
        let text = "events: Ir\nob=/a\nfn=f\n0x10 5 3\ncfn=g\ncalls=1 0x40 7\n0x14 5 100\n0x10 5 2\nob=/b\n0x40 7 1\n";
        let profile = Profile::parse(text).unwrap();
        assert_eq!(profile.instructions(), 6);
        assert_eq!(profile.executed["/a"][&0x10], 5);
        assert!(Profile::parse("ob=/a\n0x10 x y\n").is_err());
    }

    #[test]
    fn atomic_instructions_are_told_from_others() {
        assert_eq!(
            atomic_at("  4f10:\tlock xadd %rax,0x10(%rdi)"),
            Some(0x4f10)
        );
        assert_eq!(atomic_at("  4f18:\txchg   %al,(%rdi)"), Some(0x4f18));
        assert_eq!(atomic_at("  4f1a:\txchg   %ax,%ax"), None);
        assert_eq!(atomic_at("  4f1c:\tmov    %rax,0x10(%rdi)"), None);
        assert_eq!(atomic_at("0000000000004f10 <lock>:"), None);
    }
}
