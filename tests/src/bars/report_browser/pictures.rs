//! Checks that the pictures of a page show data in the colours of their series.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use testing::PATIENCE;
use zune_png::zune_core::{bytestream::ZCursor, options::DecoderOptions};

use super::{TemporaryFolder, chromium};

/// Width of the browser's window.
const WIDTH: u32 = 1_000;
/// A picture with fewer coloured pixels below its legend shows no data: a single dot has more.
const MIN_COLOURED: usize = 20;
/// Number of pictures in one screenshot. More would exceed the largest screenshot of the browser.
const BATCH: usize = 20;

/// A picture of a page.
struct Picture<'a> {
    svg: &'a str,
    name: &'a str,
    height: u32,
    /// Bottom edge of its legend, in pixels. The colours above it are not data.
    legend_bottom: u32,
}

/// The number of pictures on a page, and the names of those that show no data.
///
/// # Errors
/// If the browser fails, or the test does not notice a picture without data.
pub(super) fn without_data(folder: &TemporaryFolder, page: &Path) -> Result<(usize, Vec<String>)> {
    let html = fs::read_to_string(page)?;
    let style = between(&html, "<style>", "</style>").next().context("the page has no style")?;
    let pictures: Result<Vec<_>> = between(&html, "<svg", "</svg>").map(Picture::read).collect();
    let pictures = pictures?;
    // A picture without data: only axes.
    let control = Picture {
        svg: " width=\"880\" height=\"100\"><path class=\"grid\" d=\"M0 50h880\"/><path class=\"axis\" d=\"M9 9v80\"/>",
        name: "control",
        height: 100,
        legend_bottom: 0,
    };
    let mut blank = Vec::new();
    for batch in pictures.chunks(BATCH) {
        let shown: Vec<&Picture<'_>> = batch.iter().chain([&control]).collect();
        let found = blank_ones(folder, style, &shown)?;
        ensure!(found.last() == Some(&"control"), "a picture without data was taken for one with data");
        blank.extend(found[..found.len() - 1].iter().map(|&name| name.to_owned()));
    }
    Ok((pictures.len(), blank))
}

impl<'a> Picture<'a> {
    fn read(svg: &'a str) -> Result<Self> {
        let keys = svg.split("<text class=\"key\"").skip(1);
        let bottoms: Result<Vec<f64>> = keys.map(|key| Ok(attribute(key, " y=\"")?.parse()?)).collect();
        Ok(Self {
            svg,
            name: attribute(svg, "aria-label=\"")?,
            height: attribute(svg, " height=\"")?.parse()?,
            legend_bottom: bottoms?.into_iter().fold(0.0, f64::max) as u32 + 6,
        })
    }
}

fn blank_ones<'a>(folder: &TemporaryFolder, style: &str, shown: &[&Picture<'a>]) -> Result<Vec<&'a str>> {
    let pictures: String = shown
        .iter()
        .map(|Picture { svg, height, .. }| {
            format!("<div style=\"height:{height}px;overflow:hidden\"><svg{svg}</svg></div>")
        })
        .collect();
    let page = folder.path().join("pictures.html");
    // Hide texts, because they have the colours of the series that they name.
    let own = "body{margin:0;padding:0;max-width:none}svg text{display:none}";
    fs::write(&page, format!("<!DOCTYPE html><style>{style}{own}</style><body>{pictures}"))?;
    let file = folder.file("pictures.png");
    let height: u32 = shown.iter().map(|picture| picture.height).sum();
    let browser = chromium(folder)
        .arg(format!("--window-size={WIDTH},{height}"))
        .arg(format!("--screenshot={file}"))
        .arg(format!("file://{}", page.display()));
    let finished = browser.run(PATIENCE)?;
    ensure!(finished.code == Some(0), "chromium ended with {:?}:\n{}", finished.code, finished.stderr);
    let rows = coloured_by_row(Path::new(&file)).context("chromium left no screenshot")?;
    // Remove this screenshot, so that it cannot be taken for the next one.
    fs::remove_file(&file)?;
    let mut top = 0;
    let mut blank = Vec::new();
    for picture in shown {
        let plot = (top + picture.legend_bottom) as usize..((top + picture.height) as usize).min(rows.len());
        let coloured: usize = rows.get(plot).context("the screenshot is too small")?.iter().sum();
        if coloured < MIN_COLOURED {
            blank.push(picture.name);
        }
        top += picture.height;
    }
    Ok(blank)
}

/// The number of coloured pixels in each row. Black, white and grey do not count.
fn coloured_by_row(file: &Path) -> Result<Vec<usize>> {
    let mut decoder = zune_png::PngDecoder::new(ZCursor::new(fs::read(file)?));
    decoder.set_options(DecoderOptions::default().png_set_strip_to_8bit(true));
    let pixels = decoder.decode_raw().context("the screenshot cannot be read")?;
    let (width, _) = decoder.dimensions().context("the screenshot has no size")?;
    let samples = decoder.colorspace().context("the screenshot has no pixels")?.num_components();
    ensure!(samples >= 3, "the screenshot has no colours: {samples} samples a pixel");
    let is_coloured = |pixel: &[u8]| {
        let (least, most) = (pixel[..3].iter().min(), pixel[..3].iter().max());
        most.zip(least).is_some_and(|(most, least)| most - least > 60)
    };
    let rows = pixels.chunks(width * samples);
    Ok(rows.map(|row| row.chunks_exact(samples).filter(|pixel| is_coloured(pixel)).count()).collect())
}

/// The value of an element's attribute. `begin` is the attribute's name with the opening quote.
fn attribute<'a>(element: &'a str, begin: &str) -> Result<&'a str> {
    let value = element.split_once(begin).and_then(|(_, rest)| rest.split('"').next());
    value.with_context(|| format!("no {begin} in {element:.200}"))
}

/// Each text between the two marks.
fn between<'a>(text: &'a str, begin: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(begin).skip(1).filter_map(move |rest| rest.split(end).next())
}
