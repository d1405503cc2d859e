//! `--collations`: indexes sort text as the server compares it, in every collation that the server
//! has.
//!
//! `probe.cc`, in the server's process, makes key images with the handler's own codec of random
//! texts (letters that collations treat as one or as several, ill-formed bytes, trailing blanks and
//! zeroes; long ones whose images are longer than the engine's keys), and compares them with the
//! server's comparison of the texts. Then tables of a build that sorted otherwise are opened, see
//! `outdated`.

mod outdated;

use super::crash::Plan;
use super::plugin::Plugin;
use super::server::Server;
use super::tree::Tree;
use inkstone_testkit::build::{Result, root};
use std::process::ExitCode;
use std::time::Instant;

/// Random texts of each collation, over all shapes of keys.
const TEXTS: u32 = 6_000;

/// Checks the collations whose name has `filter` in it.
pub fn run(tree: &Tree, plugin: &Plugin, filter: Option<&str>, plan: Plan) -> Result<ExitCode> {
    let source = root().join("crates/mariadb-kit/src/collations/probe.cc");
    plugin.build_probe(
        tree,
        &source,
        &[
            "codec/key_part",
            "codec/text_order",
            "codec/text_ranks",
            "codec/long_keys",
            "codec/batch",
        ],
        "collations.so",
    )?;
    let mut server = Server::temporary(tree, "collations").with_plugin(plugin);
    server.start()?;
    let names = collations(&server, filter)?;
    let began = Instant::now();
    let wrong_images = check_images(&server, &names, plan.seed)?;
    println!(
        "images: {} collations, {wrong_images} differ from the server's comparison, {:.1} s",
        names.len(),
        began.elapsed().as_secs_f64()
    );
    if wrong_images > 0 {
        println!(
            "repeat with: cargo xtask mariadb --collations NAME --seed {}",
            plan.seed
        );
        return Ok(ExitCode::FAILURE);
    }
    server.stop()?;
    server.remove();
    outdated::check(tree, plugin)?;
    println!("tables of an earlier build: read rightly, refused where they must be, and rebuilt");
    Ok(ExitCode::SUCCESS)
}

/// Names of the collations of columns, with that of the character set where a collation is for
/// several.
fn collations(server: &Server, filter: Option<&str>) -> Result<Vec<String>> {
    let listed = server.sql(
        "SELECT FULL_COLLATION_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY
         WHERE CHARACTER_SET_NAME NOT IN ('binary', 'filename') ORDER BY 1",
    )?;
    let names: Vec<String> = listed
        .lines()
        .filter(|name| filter.is_none_or(|part| name.contains(part)))
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        Err(format!(
            "no collation's name has {:?} in it",
            filter.unwrap_or("")
        ))
    } else {
        Ok(names)
    }
}

/// How many collations have images that sort otherwise than the server compares; prints the first
/// pair of each.
fn check_images(server: &Server, names: &[String], seed: u64) -> Result<usize> {
    server.sql(
        "CREATE OR REPLACE FUNCTION inkstone_collation RETURNS STRING SONAME 'collations.so'",
    )?;
    let mut wrong = 0;
    for name in names {
        let found = server.sql(&format!(
            "SELECT inkstone_collation('{name}', {seed}, {TEXTS})"
        ))?;
        if !found.trim().is_empty() {
            println!("{name}: {}", found.trim());
            wrong += 1;
        }
    }
    Ok(wrong)
}
