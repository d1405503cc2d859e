//! `inspect control`.

use super::read::{control_bytes, control_failure};
use super::show;
use crate::failure::Result;
use clap::Args;
use inkstone_bench::output::{Output, TextTable};
use inkstone_format::control::{CONTROL_COPY_LEN, CONTROL_FILE_LEN, Control};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Arguments of `inspect control`.
#[derive(Args, Debug)]
#[command(long_about = "\
Show both copies of the control file. They are written in turn; the sound one with the higher sequence \
is in force. Exits with 3 if neither can be used.")]
pub struct ControlArguments {
    /// The database's directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Name and value of every field.
fn fields(control: &Control) -> Vec<(&'static str, Value)> {
    vec![
        ("page_size", json!(control.page_size)),
        ("uuid", json!(show::uuid(&control.uuid))),
        ("sequence", json!(control.sequence)),
        ("epoch", json!(control.epoch)),
        ("checkpoint_lsn", json!(control.checkpoint_lsn.0)),
        ("scan_start_lsn", json!(control.scan_start_lsn.0)),
        ("scan_start_epoch", json!(control.scan_start_epoch)),
        ("known_durable_lsn", json!(control.known_durable_lsn.0)),
        ("log_segment_bytes", json!(control.log_segment_bytes)),
        ("next_trx_id", json!(control.next_trx_id.0)),
        ("next_space_id", json!(control.next_space_id.0)),
        ("version_epoch", json!(control.version_epoch)),
        ("next_commit", json!(control.next_commit)),
        ("clean_shutdown", json!(control.clean_shutdown)),
    ]
}

pub fn run(arguments: &ControlArguments, output: &Output) -> Result<()> {
    let (bytes, length) = control_bytes(&arguments.directory)?;
    let (first, second) = bytes.split_at(CONTROL_COPY_LEN);
    let parsed = [first, second].map(Control::parse);
    let chosen = Control::choose([first, second]);
    let current = chosen.as_ref().ok().map(|(_, copy)| *copy);
    if length != CONTROL_FILE_LEN {
        output.text(format!(
            "the file has {length} bytes, {CONTROL_FILE_LEN} are expected"
        ));
    }
    let mut table = TextTable::new(["field", "copy 0", "copy 1"]);
    let in_force = |copy| {
        if current == Some(copy) {
            "in force"
        } else {
            ""
        }
    };
    table.row(["", in_force(0), in_force(1)]);
    let shown: Vec<Option<Vec<(&str, Value)>>> =
        parsed.iter().map(|c| c.as_ref().ok().map(fields)).collect();
    if let Some(names) = shown.iter().flatten().next() {
        for (n, (name, _)) in names.iter().enumerate() {
            let value = |copy: usize| match &shown[copy] {
                Some(fields) => fields[n].1.to_string().replace('"', ""),
                None => "-".to_owned(),
            };
            table.row([(*name).to_owned(), value(0), value(1)]);
        }
    }
    table.print(output);
    for (copy, parsed) in parsed.iter().enumerate() {
        if let Err(error) = parsed {
            output.text(format!("copy {copy} cannot be used: {error}"));
        }
    }
    let copies: Vec<Value> = parsed
        .iter()
        .enumerate()
        .map(|(copy, parsed)| match parsed {
            Ok(control) => {
                let mut object: serde_json::Map<String, Value> = fields(control)
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect();
                object.insert("in_force".to_owned(), json!(current == Some(copy)));
                object.into()
            }
            Err(error) => json!({ "error": error.to_string(), "in_force": false }),
        })
        .collect();
    match chosen {
        Ok(_) => {
            output.json(&json!({ "file_bytes": length, "copies": copies }));
            Ok(())
        }
        Err(error) => Err(control_failure(&arguments.directory, error)),
    }
}
