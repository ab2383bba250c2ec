//! The engine.
use std::collections::{HashMap, hash_map::Entry as E};
use std::io::{self, Read};
use crate::gears::*;
use super::axle;
use serde::Serialize;
extern crate libc;
mod gears;
mod inline {
    pub fn inside() {}
}

pub const MAX: usize = 10;
static mut COUNT: u32 = 0;
pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug)]
pub struct Engine<T: Clone> where T: Send {
    pub power: u32,
    secret: T,
}

pub struct Unit;
pub(crate) struct Pair(pub u8, u8);

pub enum Fuel {
    Gas { litres: f32 },
    Power(u32),
    None,
}

pub trait Start {
    const NAME: &'static str;
    type Output;
    fn start(&self) -> bool;
    fn twice(&self) -> bool { self.start() }
}

impl<T: Clone + Send> Engine<T> {
    pub fn new(power: u32) -> Self { todo!() }
    fn hidden(&self) {}
}

impl<T: Clone + Send> Start for Engine<T> {
    const NAME: &'static str = "engine";
    type Output = ();
    fn start(&self) -> bool { true }
}

pub async unsafe fn run<'a>(name: &'a str) -> Result<()> { Ok(()) }

#[macro_export]
macro_rules! shout { () => {}; }
macro_rules! whisper { () => {}; }
