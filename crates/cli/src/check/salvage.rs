//! `recover --salvage`.

use super::Recover;
use crate::failure::{Failure, Result};
use inkstone::internals::options::Doublewrite;
use inkstone::internals::salvage::{SalvageReport, salvage};
use inkstone_bench::database::{require, vfs};
use inkstone_bench::output::Output;
use inkstone_bench::progress;
use inkstone_io::Vfs;
use inkstone_io::overlay::OverlayVfs;
use serde_json::json;
use std::sync::Arc;

/// In memory, and then, if that is asked for and came out well, on disk.
pub fn run(arguments: &Recover, output: &Output) -> Result<()> {
    let options = arguments.engine.for_existing()?;
    let disk = vfs(&options)?;
    let overlay: Arc<dyn Vfs> = Arc::new(OverlayVfs::new(disk.clone()));
    require(&*overlay, &arguments.directory)?;
    let bar = progress::spinner("salvaging in memory");
    let mut in_memory = options.clone();
    in_memory.doublewrite = Doublewrite::Off;
    in_memory.buffer_pool_dump_at_shutdown = false;
    let mut report = salvage(&overlay, &arguments.directory, &in_memory)?;
    drop(overlay);
    if arguments.write {
        bar.set_message("salvaging on disk");
        report = salvage(&disk, &arguments.directory, &options)?;
    }
    bar.finish_and_clear();
    say(&report, arguments.write, output);
    match &report.not_mended[..] {
        [] => Ok(()),
        wrong => Err(Failure::Check(format!("still wrong: {}", wrong.join("; ")))),
    }
}

fn say(report: &SalvageReport, is_written: bool, output: &Output) {
    let done = if is_written {
        "was rebuilt"
    } else {
        "would be rebuilt (nothing on disk was changed; --write does it)"
    };
    for file in &report.rebuilt {
        output.text(format!("{} {done}", file.display()));
    }
    for left_out in &report.left_out {
        output.text(format!(
            "left out: {}: {}",
            left_out.file.display(),
            left_out.what
        ));
    }
    if report.rebuilt.is_empty() && report.left_out.is_empty() {
        output.text("no page in use is damaged: nothing to salvage");
    }
    let left_out = report.left_out.iter().map(|left_out| {
        json!({
            "file": left_out.file,
            "page": left_out.page.map(|page| page.to_string()),
            "what": left_out.what,
        })
    });
    output.json(&json!({
        "written": is_written,
        "rebuilt": report.rebuilt,
        "left_out": left_out.collect::<Vec<_>>(),
        "not_mended": report.not_mended,
    }));
}
