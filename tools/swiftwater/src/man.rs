//! The manual pages, made from the definition of the command line.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};

use crate::args::Cli;

/// Writes a page for the command and for each of its subcommands.
pub(crate) fn write_pages(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut command = Cli::command();
    command.build();
    write_page(&command, directory)
}

fn write_page(command: &Command, directory: &Path) -> io::Result<()> {
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    fs::write(directory.join(page.get_filename()), text)?;
    let visible = |sub: &&Command| !sub.is_hide_set() && sub.get_name() != "help";
    command.get_subcommands().filter(visible).try_for_each(|sub| write_page(sub, directory))
}
