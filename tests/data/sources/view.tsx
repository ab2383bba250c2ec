import React from "react";

interface Props { title: string }

export function View({ title }: Props): JSX.Element {
  return <h1 className="big">{title}</h1>;
}
