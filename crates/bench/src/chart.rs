//! Charts of results, as SVG: lines over the number of clients, or bars.
//!
//! What distinguishes the configurations of a run is found in the results: fields that are the same
//! in all of them are left out of the labels.

use crate::failure::{Failure, Result};
use crate::sink::Fields;
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

/// What a workload's chart shows.
#[derive(Debug)]
pub struct Chart {
    /// What stands above it.
    pub title: &'static str,
    /// The fields that tell configurations apart.
    pub by: &'static [&'static str],
    /// Lines or bars.
    pub form: Form,
}

/// How results are drawn.
#[derive(Debug)]
pub enum Form {
    /// A line for each configuration: `y` over `x`, whose values stand at equal distances.
    Lines {
        /// The field that goes to the right.
        x: &'static str,
        /// The field that goes up.
        y: &'static str,
    },
    /// A bar for each configuration and each of these fields, which have one unit.
    Bars {
        /// The fields.
        values: &'static [&'static str],
        /// What stands below the axis.
        unit: &'static str,
    },
}

const WIDTH: u32 = 1000;
/// Of a chart with lines.
const HEIGHT: u32 = 600;
const BAR_HEIGHT: usize = 26;
const FONT: (&str, u32) = ("sans-serif", 15);
/// About the width of a character of this font.
const CHARACTER: usize = 8;

/// Colours that can be told apart, also with colour blindness: Okabe and Ito's.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

fn colour(n: usize) -> RGBColor {
    COLOURS[n % COLOURS.len()]
}

/// Draws the chart to a file.
pub fn draw(chart: &Chart, results: &[Fields], path: &Path) -> Result<()> {
    let mut svg = String::new();
    let by = telling(chart.by, results);
    let drawn = match &chart.form {
        Form::Lines { x, y } => lines(chart.title, &by, (x, y), results, &mut svg),
        Form::Bars { values, unit } => bars(chart.title, &by, (values, unit), results, &mut svg),
    };
    drawn.map_err(|e| Failure::Usage(format!("--plot {}: {e}", path.display())))?;
    std::fs::write(path, svg).map_err(|e| Failure::io("write", path, e))
}

/// Those of the fields that are not the same in all results.
fn telling(by: &[&'static str], results: &[Fields]) -> Vec<&'static str> {
    let differs = |name: &&&str| {
        let first = results.first().map(|fields| fields.text(name));
        results
            .iter()
            .any(|fields| Some(fields.text(name)) != first)
    };
    by.iter().filter(differs).copied().collect()
}

fn label(by: &[&str], fields: &Fields) -> String {
    let parts = by
        .iter()
        .map(|name| format!("{name} {}", fields.text(name)));
    parts.collect::<Vec<_>>().join(", ")
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn lines(
    title: &str,
    by: &[&str],
    axes: (&str, &str),
    results: &[Fields],
    svg: &mut String,
) -> Drawn {
    let (x, y) = axes;
    let mut places: Vec<u64> = results
        .iter()
        .filter_map(|fields| fields.number(x))
        .map(|n| n as u64)
        .collect();
    places.sort_unstable();
    places.dedup();
    let mut series: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for fields in results {
        let (Some(at), Some(value)) = (fields.number(x), fields.number(y)) else {
            continue;
        };
        let place = places.partition_point(|n| *n < at as u64) as f64;
        let name = label(by, fields);
        match series.iter_mut().find(|(other, _)| *other == name) {
            Some((_, points)) => points.push((place, value)),
            None => series.push((name, vec![(place, value)])),
        }
    }
    let most = series
        .iter()
        .flat_map(|(_, points)| points)
        .map(|p| p.1)
        .fold(0.0, f64::max);
    let legend = if by.is_empty() {
        0
    } else {
        24 * series.len() as u32
    };
    let area = SVGBackend::with_string(svg, (WIDTH, HEIGHT + legend)).into_drawing_area();
    area.fill(&WHITE)?;
    let (plot, names) = area.split_vertically(HEIGHT);
    let last = (places.len().max(2) - 1) as f64;
    let mut context = ChartBuilder::on(&plot)
        .caption(title, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(88)
        .build_cartesian_2d(-0.25..last + 0.25, 0.0..most.max(1e-9) * 1.08)?;
    let place_name = |at: &f64| {
        let whole = (at - at.round()).abs() < 1e-6 && *at > -0.5;
        let place = whole.then(|| places.get(at.round() as usize)).flatten();
        place.map_or(String::new(), u64::to_string)
    };
    context
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(1)
        .x_labels(2 * places.len() + 2)
        .x_label_formatter(&place_name)
        .y_label_formatter(&|n| amount(*n))
        .x_desc(x)
        .y_desc(y)
        .label_style(FONT)
        .draw()?;
    for (n, (name, points)) in series.iter().enumerate() {
        context.draw_series(LineSeries::new(points.clone(), colour(n).stroke_width(2)))?;
        context.draw_series(
            points
                .iter()
                .map(|at| Circle::new(*at, 4, colour(n).filled())),
        )?;
        if legend > 0 {
            let top = 24 * n as i32;
            names.draw(&Rectangle::new(
                [(88, top + 2), (104, top + 14)],
                colour(n).filled(),
            ))?;
            names.draw(&Text::new(name.clone(), (112, top), FONT))?;
        }
    }
    area.present()?;
    Ok(())
}

fn bars(
    title: &str,
    by: &[&str],
    values: (&[&str], &str),
    results: &[Fields],
    svg: &mut String,
) -> Drawn {
    let (names, unit) = values;
    let mut rows: Vec<(String, usize, f64)> = Vec::new();
    for fields in results {
        for (n, name) in names.iter().enumerate() {
            let parts = [label(by, fields), (*name).to_owned()];
            let shown = if names.len() == 1 && !by.is_empty() {
                &parts[..1]
            } else {
                &parts[..]
            };
            let shown: Vec<&str> = shown
                .iter()
                .map(String::as_str)
                .filter(|s| !s.is_empty())
                .collect();
            rows.push((shown.join(": "), n, fields.number(name).unwrap_or(0.0)));
        }
    }
    // Places count from the bottom.
    rows.reverse();
    let most = rows.iter().map(|row| row.2).fold(0.0, f64::max).max(1e-9);
    let widest = rows
        .iter()
        .map(|row| row.0.chars().count())
        .max()
        .unwrap_or(0);
    let height = 120 + BAR_HEIGHT * rows.len();
    let size = (WIDTH.max((CHARACTER * widest) as u32 + 500), height as u32);
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    area.fill(&WHITE)?;
    let mut context = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size((CHARACTER * widest + 16) as u32)
        .build_cartesian_2d(
            0.0..most * 1.12,
            (0..rows.len().max(1) - 1).into_segmented(),
        )?;
    let row_name = |at: &SegmentValue<usize>| match at {
        SegmentValue::CenterOf(n) => rows.get(*n).map_or(String::new(), |row| row.0.clone()),
        _ => String::new(),
    };
    context
        .configure_mesh()
        .disable_y_mesh()
        .max_light_lines(1)
        .y_labels(rows.len())
        .y_label_formatter(&row_name)
        .x_label_formatter(&|n| amount(*n))
        .x_desc(unit)
        .label_style(FONT)
        .draw()?;
    let (one, beside) = (SegmentValue::Exact, Pos::new(HPos::Left, VPos::Center));
    context.draw_series(
        rows.iter()
            .enumerate()
            .map(|(n, (_, value_number, value))| {
                let corners = [(0.0, one(n)), (*value, one(n + 1))];
                let mut bar = Rectangle::new(corners, colour(*value_number).filled());
                bar.set_margin(3, 3, 0, 0);
                bar
            }),
    )?;
    let style = TextStyle::from(FONT.into_font()).pos(beside);
    context.draw_series(rows.iter().enumerate().map(|(n, (_, _, value))| {
        let place = (*value + most * 0.01, SegmentValue::CenterOf(n));
        Text::new(amount(*value), place, style.clone())
    }))?;
    area.present()?;
    Ok(())
}

/// A number on an axis.
fn amount(value: f64) -> String {
    match value {
        v if v.abs() < 1e-9 => "0".to_owned(),
        v if v >= 1000.0 => crate::output::count(v.round() as u64),
        v if v >= 10.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.1}"),
        v => format!("{v:.3}"),
    }
}
