import fs, { readFile as read } from "node:fs";
import * as path from "path";
import type { Money } from "./money";
import "../styles.css";
import lodash from "lodash";
import x from "@/deep/x";
export { tax } from "./tax.js";
export * from "@acme/rates";
const later = await import("./later");

export const RATE: number = 0.2;
let hidden = 1;

export interface Store<T> extends Base {
  readonly size: number;
  get(key: string): T | undefined;
}

export type Key = string | number;

export enum Colour { Red = "red", Green }

export abstract class Shop<T> implements Store<T> {
  private stock: Map<string, T> = new Map();
  static count = 0;
  #secret = 1;

  constructor(readonly name: string) { super(); }

  get size(): number { return 0; }
  async sell(item: T, { price }: { price: number }): Promise<void> {}
  protected abstract close(): void;
}

export default function open(name: string): Shop<string> { return null!; }

export const total = async (items: number[]): Promise<number> => items.length;
function helper() {}
function later2() {}
export { later2 as soon };

declare function ambient(a: string): void;
export namespace Inner { export function deep(): void {} }
