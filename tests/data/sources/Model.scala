package com.acme.model

import scala.collection.mutable.{Map, ListBuffer => Buffer}
import com.acme.bank.Account
import java.util._

trait Shape { def area: Double; val name: String = "x" }

case class Circle(radius: Double) extends Shape {
  def area: Double = 3.14 * radius * radius
  private def secret(): Int = 1
}

object Circle {
  val Unit = Circle(1)
  var count: Int = 0
  type Radius = Double
}
