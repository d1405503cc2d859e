//! Tables come, go, and change their names.

use super::generate::Shape;
use super::{Outcome, Run, Stop, bug, is_fault};
use crate::model::Event;
use inkstone::Error;

impl Run {
    pub(super) fn new_name(&mut self) -> String {
        self.names += 1;
        format!("t{}", self.names)
    }

    pub(super) fn create(&mut self) -> Outcome {
        let features = &self.plan.features;
        let wanted = if features.ddl || self.tables.is_empty() {
            features.tables_max
        } else {
            0
        };
        if self.tables.len() >= wanted {
            return Ok(());
        }
        let some_trees = features.secondary_trees;
        let name = self.new_name();
        let trees = if some_trees {
            self.rng.pick(&["", "a", "a", "ab"])
        } else {
            ""
        };
        let secondary: Vec<String> = trees.chars().map(|c| c.to_string()).collect();
        let secondary: Vec<&str> = secondary.iter().map(String::as_str).collect();
        let id = self.model.new_table_id();
        let shape = Shape::random(&mut self.rng, &self.plan.features);
        self.shapes.insert(id, shape);
        self.trace(|| format!("create {name} as {id} with {trees:?}: {shape:?}"));
        self.marks.add("creates", 1);
        let options = self.plan.features.table_options(&mut self.rng);
        let created = self.database();
        let result = created.create_table_with(&name, &secondary, &options);
        let event = Event::Create(id, name.clone(), secondary.len() + 1);
        match result {
            Ok(table) => {
                self.model.happened(event);
                self.model.synced();
                self.tables.insert(id, table);
                Ok(())
            }
            Err(error) => self.failed_ddl("create", &error, event, |names| names.contains(&name)),
        }
    }

    pub(super) fn drop_table(&mut self) -> Outcome {
        let (id, table, _) = self.any_table();
        drop(table);
        let name = self.model.now.tables[&id].name.clone();
        self.trace(|| format!("drop {name}, {id}"));
        self.marks.add("drops", 1);
        self.tables.remove(&id);
        match self.database().drop_table_at_once(&name) {
            Ok(()) => {
                self.model.happened(Event::Drop(id));
                self.model.synced();
                Ok(())
            }
            Err(error) => self.failed_ddl("drop", &error, Event::Drop(id), |names| {
                names.iter().all(|n| *n != name)
            }),
        }
    }

    pub(super) fn rename(&mut self) -> Outcome {
        let (id, _, _) = self.any_table();
        let name = self.model.now.tables[&id].name.clone();
        let to = self.new_name();
        self.trace(|| format!("rename {name}, {id}, to {to}"));
        let event = Event::Rename(id, to.clone());
        match self.database().rename_table(&name, &to) {
            Ok(()) => {
                self.model.happened(event);
                self.model.synced();
                Ok(())
            }
            Err(error) => self.failed_ddl("rename", &error, event, |names| names.contains(&to)),
        }
    }

    /// DDL failed: it may have happened if the engine is dead; else the catalog says whether.
    pub(super) fn failed_ddl(
        &mut self,
        what: &str,
        error: &Error,
        event: Event,
        happened: impl Fn(&[String]) -> bool,
    ) -> Outcome {
        self.trace(|| format!("{what} fails: {error}"));
        if let Err(stop) = self.judge(what, error) {
            if matches!(stop, Stop::Dead) {
                self.model.happened(event);
            }
            return Err(stop);
        }
        let mut names = self.database().tables();
        if names.as_ref().is_err_and(is_fault) {
            // Nothing can be read while no page can be written: the spell is over.
            self.vfs.clear_faults();
            self.write_pages();
            names = self.database().tables();
        }
        let names = match names {
            Ok(names) => names,
            Err(_) if self.vfs.is_dead() => {
                self.model.happened(event);
                return Err(Stop::Dead);
            }
            Err(error) => return bug(format!("list of tables: {error}")),
        };
        if happened(&names) {
            self.model.happened(event);
        }
        let db = self.database();
        self.tables.clear();
        for (&id, table) in &self.model.now.tables {
            if let Ok(handle) = db.table(&table.name) {
                self.tables.insert(id, handle);
            }
        }
        Ok(())
    }
}
